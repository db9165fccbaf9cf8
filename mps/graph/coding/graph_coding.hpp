#pragma once

namespace mps {
class Coder;
}

/// Coding of compiled graphs. The library's own.
namespace mps::detail {

struct GraphProgram;

/// Codes images, states and steps with their kernels; a program that is read is empty before, and checked so far that
/// an encode finds what it looks for: a wrong one throws there what it would throw for wrong images.
/// @throws Error, by the coder; when writing also for a layer that trains by a data source that cannot be coded
void codeProgram(Coder& coder, GraphProgram& program);

/// Lets a coder find the library's kernels that graphs are made of, and its data sources.
void addGraphDecoders(Coder& coder);

}  // namespace mps::detail
