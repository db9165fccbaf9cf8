#pragma once

#include <string>

#include "mps/core/types/error.hpp"

namespace mps::detail {

/// Class and label of a kernel that takes its label from the data source and does not have it yet.
template <class Source>
std::string describeOwnerOf(const Source& source, const char* className) {
  return source.label().empty() ? className : std::string(className) + " \"" + source.label() + "\"";
}

/// Calls load() of a data source, read() and, also when that throws, purge(). The library's own.
///
/// What purge() throws reaches the caller, unless reading has thrown already. @throws Error when load() returns false
/// @param owner and `argument`: whose data source it is, for messages
template <class Source, class Read>
void readLoaded(const std::string& owner, const char* argument, Source& source, Read&& read) {
  if (!source.load())
    throw Error(owner, argument,
                "a data source" + (source.label().empty() ? "" : " \"" + source.label() + "\"") +
                    " whose load() failed",
                "one that loads");
  try {
    read();
  } catch (...) {
    try {
      source.purge();
    } catch (...) {  // the first exception says more
    }
    throw;
  }
  source.purge();
}

}  // namespace mps::detail
