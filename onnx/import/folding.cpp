#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "onnx/import/node_import.hpp"

/// Operators whose inputs are constants: chains that compute shapes, and parameters that get another shape.
namespace unmetal::onnx::detail {
namespace {

using Extents = Constant::Integers;

/// Of those that make each number anew: beyond it, a model is refused.
constexpr std::uint64_t mostNumbers = std::uint64_t{1} << 24U;

void checkCount(const NodeImport& node, std::uint64_t count) {
  if (count > mostNumbers)
    throw node.refusal("it makes a constant of " + std::to_string(count) + " numbers, expected at most " +
                       std::to_string(mostNumbers));
  node.graph().checkRoom(count);
}

std::int64_t placeOf(const NodeImport& node, std::int64_t axis, std::size_t rank) {
  const auto signedRank = static_cast<std::int64_t>(rank);
  const std::int64_t place = axis < 0 ? axis + signedRank : axis;
  if (place < 0 || place >= signedRank)
    throw node.refusal("an axis", std::to_string(axis), "one of " + std::to_string(rank));
  return place;
}

/// A constant whose numbers are those of another one, picked by their place.
template <class Pick>
Constant picked(const NodeImport& node, const Constant& source, Extents shape, const Pick& pick) {
  if (source.isUniform()) return {std::move(shape), source.values()};
  const std::uint64_t count = countOf(shape);
  checkCount(node, count);
  const auto all = [&](const auto& values) {
    std::decay_t<decltype(values)> made(count);
    for (std::uint64_t i = 0; i < count; ++i) made[i] = values[pick(i)];
    return Constant::Values(std::move(made));
  };
  return {std::move(shape), std::visit(all, source.values())};
}

void foldConstant(NodeImport& node) {
  if (const AttributeMessage* value = node.find("value"); value != nullptr && value->tensor)
    return node.setResult(Constant::of(*value->tensor));
  if (node.hasAttribute("value_float"))
    return node.setResult(Constant({}, std::vector<float>{node.number("value_float", 0)}));
  if (node.hasAttribute("value_int"))
    return node.setResult(Constant({}, Extents{node.integer("value_int", 0)}));
  if (const AttributeMessage* value = node.find("value_floats"))
    return node.setResult(Constant({static_cast<std::int64_t>(value->numbers.size())}, value->numbers));
  if (const AttributeMessage* value = node.find("value_ints"))
    return node.setResult(Constant({static_cast<std::int64_t>(value->integers.size())}, value->integers));
  throw node.refusal("it has no value of numbers");
}

void foldConstantOfShape(NodeImport& node) {
  Constant::Values value = std::vector<float>{0};
  if (const AttributeMessage* given = node.find("value"); given != nullptr && given->tensor) {
    const Constant constant = Constant::of(*given->tensor);
    if (constant.count() != 1) throw node.refusal("its value is not one number");
    value = constant.values();
  }
  node.setResult(Constant(node.constant(0)->integers(), std::move(value)));
}

void foldIdentity(NodeImport& node) {
  node.setResult(Constant(*node.constant(0)));
}

void foldCast(NodeImport& node) {
  const std::int64_t type = node.integer("to", 1);
  static_cast<void>(node.integer("saturate", 1));
  const Constant& source = *node.constant(0);
  checkCount(node, source.stored());
  const bool isNumber = type == 1 || type == 10 || type == 11;
  if (!isNumber && type != 6 && type != 7)
    throw node.refusal("attribute to", std::to_string(type), "a type of floats, int32 or int64");
  if (isNumber) {
    std::vector<float> values;
    for (std::uint64_t i = 0; i < source.stored(); ++i) values.push_back(source.number(i));
    return node.setResult(Constant(source.shape(), std::move(values)));
  }
  Extents values;
  for (std::uint64_t i = 0; i < source.stored(); ++i) values.push_back(source.integer(i));
  node.setResult(Constant(source.shape(), std::move(values)));
}

void foldShape(NodeImport& node) {
  node.setResult(partOfShape(node, node.constant(0)->shape()));
}

/// Of constants of one number alone: others would be copied.
void foldExpand(NodeImport& node) {
  const auto source = node.constant(0);
  if (source->count() != 1)
    throw node.refusal("shape of its source", describeShape(source->shape()), "one number");
  Extents shape = node.constant(1)->integers();
  while (shape.size() < source->shape().size()) shape.insert(shape.begin(), 1);
  node.setResult(Constant(std::move(shape), source->values()));
}

void foldGather(NodeImport& node) {
  const auto source = node.constant(0);
  const auto indices = node.constant(1);
  const Extents& shape = source->shape();
  const auto axis = static_cast<std::size_t>(placeOf(node, node.integer("axis", 0), shape.size()));
  checkCount(node, indices->count());
  Extents places = indices->integers();
  for (std::int64_t& place : places) {
    const std::int64_t given = place;
    place += place < 0 ? shape[axis] : 0;
    if (place < 0 || place >= shape[axis])
      throw node.refusal("an index", std::to_string(given), "one of " + std::to_string(shape[axis]));
  }
  Extents result(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis));
  result.insert(result.end(), indices->shape().begin(), indices->shape().end());
  result.insert(result.end(), shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end());
  std::uint64_t inner = 1;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= static_cast<std::uint64_t>(shape[i]);
  const auto extent = static_cast<std::uint64_t>(shape[axis]);
  node.setResult(picked(node, *source, std::move(result), [&](std::uint64_t i) {
    const auto place = static_cast<std::uint64_t>(places[i / inner % places.size()]);
    return (i / inner / places.size() * extent + place) * inner + i % inner;
  }));
}

/// Along the first axis alone, as in chains of shapes.
void foldConcatenation(NodeImport& node) {
  std::uint64_t count = 0;
  bool areIntegers = true;
  for (std::size_t i = 0; i < node.inputCount(); ++i) {
    const Constant& part = *node.constant(i);
    if (part.shape().size() != 1 || placeOf(node, node.integer("axis", 0), 1) != 0)
      throw node.refusal("it joins constants of several axes");
    count += part.count();
    areIntegers = areIntegers && part.isInteger();
  }
  checkCount(node, count);
  Extents integers;
  std::vector<float> numbers;
  for (std::size_t i = 0; i < node.inputCount(); ++i) {
    const auto part = node.constant(i);
    for (std::uint64_t k = 0; k < part->count(); ++k)
      if (areIntegers)
        integers.push_back(part->integer(k));
      else
        numbers.push_back(part->number(k));
  }
  const Extents shape{static_cast<std::int64_t>(count)};
  node.setResult(areIntegers ? Constant(shape, std::move(integers)) : Constant(shape, std::move(numbers)));
}

/// Of whole numbers.
void foldRange(NodeImport& node) {
  for (std::size_t i = 0; i < 3; ++i)
    if (!node.constant(i)->isInteger() || node.constant(i)->count() != 1)
      throw node.refusal("input \"" + node.inputName(i) + "\" is not one whole number");
  constexpr std::int64_t most = std::int64_t{1} << 31;
  const std::int64_t start = node.constant(0)->integer(0);
  const std::int64_t end = node.constant(1)->integer(0);
  const std::int64_t step = node.constant(2)->integer(0);
  for (const std::int64_t number : {start, end, step})
    if (number < -most || number > most)
      throw node.refusal("a number", std::to_string(number), "at most 2^31");
  if (step == 0) throw node.refusal("its step is 0");
  const std::int64_t way = step > 0 ? end - start : start - end;
  const std::int64_t length = std::abs(step);
  const std::int64_t count = way <= 0 ? 0 : (way + length - 1) / length;
  checkCount(node, static_cast<std::uint64_t>(count));
  Extents values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(start + i * step);
  node.setResult(Constant({count}, std::move(values)));
}

Extents givenAxes(const NodeImport& node) {
  return node.hasInput(1) ? node.constant(1)->integers() : node.integers("axes");
}

void foldUnsqueeze(NodeImport& node) {
  const auto source = node.constant(0);
  Extents shape = source->shape();
  Extents axes = givenAxes(node);
  const std::size_t rank = shape.size() + axes.size();
  if (rank > 8) throw node.refusal("its result has more than eight axes");
  for (std::int64_t& axis : axes) axis = placeOf(node, axis, rank);
  std::ranges::sort(axes);
  for (const std::int64_t axis : axes) {
    if (axis > static_cast<std::int64_t>(shape.size())) throw node.refusal("its axes do not fit the shape");
    shape.insert(shape.begin() + axis, 1);
  }
  node.setResult(source->withShape(std::move(shape)));
}

void foldSqueeze(NodeImport& node) {
  const auto source = node.constant(0);
  Extents axes = givenAxes(node);
  for (std::int64_t& axis : axes) axis = placeOf(node, axis, source->shape().size());
  Extents shape;
  for (std::size_t i = 0; i < source->shape().size(); ++i) {
    const std::int64_t extent = source->shape()[i];
    const bool isNamed = std::ranges::find(axes, static_cast<std::int64_t>(i)) != axes.end();
    if (!(axes.empty() ? extent == 1 : isNamed)) shape.push_back(extent);
  }
  node.setResult(source->withShape(std::move(shape)));
}

void foldReshape(NodeImport& node) {
  const bool keepsZeros = node.integer("allowzero", 0) != 0;
  const auto source = node.constant(0);
  Extents shape = node.constant(1)->integers();
  std::uint64_t known = 1;
  std::int64_t* open = nullptr;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !keepsZeros && i < source->shape().size()) shape[i] = source->shape()[i];
    if (shape[i] == -1 && open == nullptr) {
      open = &shape[i];
    } else {
      known = countOf({static_cast<std::int64_t>(known), shape[i]});
    }
  }
  if (open != nullptr && known != 0) *open = static_cast<std::int64_t>(source->count() / known);
  node.setResult(source->withShape(std::move(shape)));
}

void foldFlatten(NodeImport& node) {
  const auto source = node.constant(0);
  const std::int64_t axis = node.integer("axis", 1);
  if (axis < 0 || axis > static_cast<std::int64_t>(source->shape().size()))
    throw node.refusal("attribute axis", std::to_string(axis), "one of the constant's axes");
  const Extents outer(source->shape().begin(), source->shape().begin() + axis);
  const Extents inner(source->shape().begin() + axis, source->shape().end());
  node.setResult(source->withShape(
      {static_cast<std::int64_t>(countOf(outer)), static_cast<std::int64_t>(countOf(inner))}));
}

void foldTranspose(NodeImport& node) {
  const auto source = node.constant(0);
  const Extents& shape = source->shape();
  const std::size_t rank = shape.size();
  Extents order = node.integers("perm");
  if (order.empty())
    for (std::size_t i = rank; i-- > 0;) order.push_back(static_cast<std::int64_t>(i));
  Extents sorted = order;
  std::ranges::sort(sorted);
  Extents identity(rank);
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity) throw node.refusal("its attribute perm is no order of the constant's axes");
  std::vector<std::uint64_t> strides(rank, 1);
  for (std::size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * static_cast<std::uint64_t>(shape[i]);
  Extents result;
  for (const std::int64_t axis : order) result.push_back(shape[static_cast<std::size_t>(axis)]);
  node.setResult(picked(node, *source, result, [&](std::uint64_t i) {
    std::uint64_t place = 0;
    for (std::size_t axis = rank; axis-- > 0;) {
      const auto extent = static_cast<std::uint64_t>(result[axis]);
      place += i % extent * strides[static_cast<std::size_t>(order[axis])];
      i /= extent;
    }
    return place;
  }));
}

/// Of one axis: `count` elements from `start` on.
struct Range {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};

/// Ends beyond the axis mean its end.
Range rangeOf(const NodeImport& node, std::int64_t size, std::int64_t start, std::int64_t end,
              std::int64_t step) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  if (step == 0 || step < -most || step > most)
    throw node.refusal("a step", std::to_string(step), "another number than 0");
  const auto place = [&](std::int64_t given) {
    return std::clamp<std::int64_t>(given < 0 && given >= -size ? given + size : given, -1, size);
  };
  const bool isForward = step > 0;
  const std::int64_t first =
      isForward ? std::max<std::int64_t>(place(start), 0) : std::min(place(start), size - 1);
  const std::int64_t behind = isForward ? std::max<std::int64_t>(place(end), 0) : place(end);
  const std::int64_t way = isForward ? behind - first : first - behind;
  const std::int64_t length = isForward ? step : -step;
  return {first, step, way <= 0 ? 0 : (way + length - 1) / length};
}

void foldSlice(NodeImport& node) {
  const auto source = node.constant(0);
  const Extents& shape = source->shape();
  const bool hasInputs = node.hasInput(1);
  const Extents starts = hasInputs ? node.constant(1)->integers() : node.integers("starts");
  const Extents ends = hasInputs ? node.constant(2)->integers() : node.integers("ends");
  Extents axes = node.hasInput(3) ? node.constant(3)->integers() : node.integers("axes");
  Extents steps = node.hasInput(4) ? node.constant(4)->integers() : Extents(starts.size(), 1);
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    throw node.refusal("it has not one start, end, axis and step for each axis");
  std::vector<Range> ranges;
  for (const std::int64_t extent : shape) ranges.push_back({0, 1, extent});
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto axis = static_cast<std::size_t>(placeOf(node, axes[i], shape.size()));
    ranges[axis] = rangeOf(node, shape[axis], starts[i], ends[i], steps[i]);
  }
  Extents result;
  for (const Range& range : ranges) result.push_back(range.count);
  node.setResult(picked(node, *source, result, [&](std::uint64_t i) {
    std::uint64_t place = 0;
    std::uint64_t stride = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      const auto count = static_cast<std::uint64_t>(ranges[axis].count);
      const std::int64_t index =
          ranges[axis].start + ranges[axis].step * static_cast<std::int64_t>(i % count);
      place += static_cast<std::uint64_t>(index) * stride;
      stride *= static_cast<std::uint64_t>(shape[axis]);
      i /= count;
    }
    return place;
  }));
}

double computed(const NodeImport& node, double first, double second) {
  if (node.type() == "Add") return first + second;
  if (node.type() == "Sub") return first - second;
  if (node.type() == "Mul") return first * second;
  if (second == 0) throw node.refusal("it divides a constant by 0");
  return first / second;
}

/// Of constants of one shape, or of which one is a single number.
void foldArithmetic(NodeImport& node) {
  const auto first = node.constant(0);
  const auto second = node.constant(1);
  const bool isFirstLarger = first->count() >= second->count();
  const Constant& larger = isFirstLarger ? *first : *second;
  if (first->shape() != second->shape() && first->count() != 1 && second->count() != 1)
    throw node.refusal("it joins constants of " + describeShape(first->shape()) + " and " +
                       describeShape(second->shape()));
  const std::uint64_t stored = std::max(first->stored(), second->stored());
  checkCount(node, stored);
  const auto at = [](const Constant& constant, std::uint64_t i) { return constant.stored() == 1 ? 0 : i; };
  if (first->isInteger() && second->isInteger()) {
    Extents values;
    for (std::uint64_t i = 0; i < stored; ++i) {
      const double value = std::trunc(computed(node, static_cast<double>(first->integer(at(*first, i))),
                                               static_cast<double>(second->integer(at(*second, i)))));
      constexpr double most = 1e15;
      if (!(std::abs(value) < most)) throw node.refusal("it makes a whole number beyond 10^15");
      values.push_back(static_cast<std::int64_t>(value));
    }
    return node.setResult(Constant(larger.shape(), std::move(values)));
  }
  std::vector<float> values;
  for (std::uint64_t i = 0; i < stored; ++i)
    values.push_back(
        static_cast<float>(computed(node, first->number(at(*first, i)), second->number(at(*second, i)))));
  node.setResult(Constant(larger.shape(), std::move(values)));
}

void foldFunction(NodeImport& node) {
  const auto source = node.constant(0);
  checkCount(node, source->stored());
  std::vector<float> values;
  for (std::uint64_t i = 0; i < source->stored(); ++i) {
    const float value = source->number(i);
    values.push_back(node.type() == "Floor"  ? std::floor(value)
                     : node.type() == "Ceil" ? std::ceil(value)
                     : node.type() == "Sqrt" ? std::sqrt(value)
                                             : -value);
  }
  node.setResult(Constant(source->shape(), std::move(values)));
}

}  // namespace

OperatorImport foldingOf(std::string_view type) {
  static const std::map<std::string_view, OperatorImport> operators{
      {"Add", foldArithmetic},       {"Cast", foldCast},           {"Ceil", foldFunction},
      {"Concat", foldConcatenation}, {"Constant", foldConstant},   {"ConstantOfShape", foldConstantOfShape},
      {"CastLike", foldIdentity},    {"Expand", foldExpand},       {"Div", foldArithmetic},
      {"Flatten", foldFlatten},      {"Floor", foldFunction},      {"Gather", foldGather},
      {"Identity", foldIdentity},    {"Mul", foldArithmetic},      {"Neg", foldFunction},
      {"Range", foldRange},          {"Reshape", foldReshape},     {"Shape", foldShape},
      {"Slice", foldSlice},          {"Sqrt", foldFunction},       {"Squeeze", foldSqueeze},
      {"Sub", foldArithmetic},       {"Transpose", foldTranspose}, {"Unsqueeze", foldUnsqueeze}};
  const auto found = operators.find(type);
  return found == operators.end() ? nullptr : found->second;
}

}  // namespace unmetal::onnx::detail
