#pragma once

#include <memory>
#include <string>

#include "mps/conform/guarded/guarded_pages.hpp"

namespace mps::detail {

/// While it lives, each of oneDNN's primitives that this process runs gets copies of its arguments and its scratch memory,
/// each beside a page that nobody may touch. One at a time.
///
///     const GuardedPrimitives guards(PageSide::After);
///     plan->run(stream, operands);
///     EXPECT_EQ(guards.report(), "");
class GuardedPrimitives {
 public:
  explicit GuardedPrimitives(PageSide side);
  ~GuardedPrimitives();
  GuardedPrimitives(const GuardedPrimitives&) = delete;
  GuardedPrimitives& operator=(const GuardedPrimitives&) = delete;

  /// Number of primitives that ran.
  [[nodiscard]] int runs() const;
  /// Which of them wrote an input, or between the elements of an output, or into a guard band; a line each.
  [[nodiscard]] std::string report() const;

 private:
  class Interceptor;
  std::unique_ptr<Interceptor> interceptor_;
};

}  // namespace mps::detail
