#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace unmetal {

/// Of one record, as TensorFlow writes them: its length, that one's checksum, the bytes, their checksum.
std::string recordOf(std::string_view bytes);

/// An event file of TensorBoard: records that are appended, each with one write, so that the file is readable at any time
/// and a killed run leaves whole records. @throws mps::Error (all functions), one sentence with the file and the trouble;
/// a record that could not be written wholly (full disk) is taken back
class EventFile {
 public:
  /// Begins a new file, in place of an old one.
  explicit EventFile(const std::filesystem::path& path);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  ~EventFile();

  /// @param event an Event message
  void append(std::string_view event);

 private:
  [[noreturn]] void fail(int errorNumber) const;

  std::string name_;
  int descriptor_ = -1;
};

}  // namespace unmetal
