#include "mps/core/image/byte_rows.hpp"

#include <algorithm>

namespace mps::detail {
namespace {

/// Strides that do not count become those of a single image, if that can be.
ByteRows simplified(ByteRows area) {
  if (area.rows == 1) {
    area.rows = area.images;
    area.rowStride = area.imageStride;
    area.images = 1;
  }
  if (area.rows == 1) area.rowStride = area.rowBytes;
  if (area.images == 1) area.imageStride = area.rows * area.rowStride;
  return area;
}

/// Whether all rows begin at multiples of the stride, from the first one on.
bool isOnOneGrid(const ByteRows& area) {
  return area.images == 1 || area.imageStride % area.rowStride == 0;
}

/// Of the same strides: whether they have columns in common, wherever their rows are.
bool shareColumns(const ByteRows& one, const ByteRows& other) {
  const std::int64_t stride = one.rowStride;
  const std::int64_t distance = ((other.begin - one.begin) % stride + stride) % stride;
  return distance < one.rowBytes || distance + other.rowBytes > stride;
}

/// A place among the rows.
struct Row {
  std::int64_t begin = 0;
  bool isThere = false;
};

/// The first row that ends behind a place.
Row firstBehind(const ByteRows& area, std::int64_t place) {
  const std::int64_t distance = place - area.begin - area.rowBytes;
  if (distance < 0) return {area.begin, true};
  std::int64_t image = std::min(distance / area.imageStride, area.images - 1);
  std::int64_t row = (distance - image * area.imageStride) / area.rowStride + 1;
  if (row >= area.rows) {
    row = 0;
    ++image;
  }
  return {area.begin + image * area.imageStride + row * area.rowStride, image < area.images};
}

}  // namespace

bool areSame(const ByteRows& one, const ByteRows& other) {
  const ByteRows a = simplified(one), b = simplified(other);
  return a.begin == b.begin && a.images == b.images && a.rows == b.rows && a.rowBytes == b.rowBytes &&
         a.rowStride == b.rowStride && a.imageStride == b.imageStride;
}

bool overlap(const ByteRows& one, const ByteRows& other) {
  if (one.isEmpty() || other.isEmpty()) return false;
  const ByteRows a = simplified(one), b = simplified(other);
  if (a.rows * a.images > 1 && b.rows * b.images > 1 && a.rowStride == b.rowStride && isOnOneGrid(a) &&
      isOnOneGrid(b) && !shareColumns(a, b))
    return false;
  // Each step leaves out all rows of one that end before the other's next row begins.
  Row ofB{b.begin, true};
  while (ofB.isThere) {
    const Row ofA = firstBehind(a, ofB.begin);
    if (!ofA.isThere) return false;
    if (ofA.begin < ofB.begin + b.rowBytes) return true;
    ofB = firstBehind(b, ofA.begin);
    if (ofB.isThere && ofB.begin < ofA.begin + a.rowBytes) return true;
  }
  return false;
}

}  // namespace mps::detail
