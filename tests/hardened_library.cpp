#include <cstring>

/// A shared library with the options of libunmetal: an array on the stack, and a copy whose size the compiler does not know.
extern "C" __attribute__((visibility("default"))) int sumOfCopy(const char* text, unsigned long size) {
  char copy[64];
  std::memcpy(copy, text, size);
  int sum = 0;
  for (const char letter : copy) sum += letter;
  return sum;
}
