#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "train/network/network.hpp"
#include "train/text/svg.hpp"

/// Network::drawing(): boxes from top to bottom. A box is a layer with weights, a pool or a junction, together with the
/// normalisations and activations that nothing else uses the input of. Paths beside the main one lie to its right.
namespace unmetal::train {
namespace {

using detail::fadedColor;
using detail::pixels;
using detail::Point;
using detail::SvgWriter;
using detail::textColor;

// Sizes in pixels.
constexpr double boxWidth = 272;
constexpr double lineHeight = 16;
constexpr double boxPadding = 7;
constexpr double rowGap = 36;
constexpr double laneGap = 34;
constexpr double edgeLaneWidth = 18;
constexpr double margin = 36;
constexpr double titleHeight = 40;
constexpr double characterWidth = 6.2;  // the mean of most fonts at 11 pixels
constexpr double fontSize = 11;

constexpr const char* edgeColor = "#8c959f";
constexpr const char* groupColor = "#f6f8fa";
constexpr const char* groupBorder = "#d0d7de";

struct Box {
  std::vector<std::size_t> layers;  ///< the first one has the inputs, the last one the result
  std::size_t row = 0;
  std::size_t lane = 0;
};

/// From one box to another. One that passes others runs down a lane of its own.
struct Edge {
  std::size_t from = 0;
  std::size_t to = 0;
  std::optional<std::size_t> lane = std::nullopt;
};

/// Which rows of each lane are taken.
class Lanes {
 public:
  [[nodiscard]] bool isFree(std::size_t lane, std::size_t first, std::size_t last) const {
    if (lane >= taken_.size()) return true;
    return std::ranges::none_of(taken_[lane],
                                [&](const auto& rows) { return rows.first <= last && first <= rows.second; });
  }
  void take(std::size_t lane, std::size_t first, std::size_t last) {
    if (lane >= taken_.size()) taken_.resize(lane + 1);
    taken_[lane].emplace_back(first, last);
  }
  /// The leftmost lane from `begin` on.
  std::size_t takeFree(std::size_t begin, std::size_t first, std::size_t last) {
    while (!isFree(begin, first, last)) ++begin;
    take(begin, first, last);
    return begin;
  }
  [[nodiscard]] std::size_t count() const { return taken_.size(); }

 private:
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> taken_;
};

/// The label up to its last point, which the layers of a block share; empty without one.
std::string groupOf(const std::string& label) {
  const std::size_t point = label.rfind('.');
  return point == std::string::npos ? std::string() : label.substr(0, point);
}

bool continuesBox(const LayerKind& kind) {
  return std::holds_alternative<BatchNormalizationLayer>(kind) ||
         std::holds_alternative<InstanceNormalizationLayer>(kind) ||
         std::holds_alternative<GroupNormalizationLayer>(kind) ||
         std::holds_alternative<CrossChannelNormalizationLayer>(kind) ||
         std::holds_alternative<ActivationLayer>(kind) || std::holds_alternative<DropoutLayer>(kind) ||
         std::holds_alternative<SoftmaxLayer>(kind);
}
bool joins(const LayerKind& kind) {
  return std::holds_alternative<AddLayer>(kind) || std::holds_alternative<ConcatenationLayer>(kind);
}

const char* colorOf(const LayerKind& kind) {
  if (std::holds_alternative<ConvolutionLayer>(kind) ||
      std::holds_alternative<TransposedConvolutionLayer>(kind))
    return "#ddebfa";
  if (std::holds_alternative<DenseLayer>(kind)) return "#e6dff7";
  if (std::holds_alternative<InputLayer>(kind)) return "#eaeef2";
  if (joins(kind)) return "#fff3d1";
  return continuesBox(kind) ? "#ffffff" : "#dcf2e3";
}

/// What a reader wants to know of it beside its name: "3x3, stride 2".
std::string details(const LayerKind& kind) {
  const auto shown = [](const Sides& sides) {
    return sides.height == sides.width ? std::to_string(sides.height) : describe(sides);
  };
  const auto window = [&](const Sides& size, const Sides& stride, const Sides& usual) {
    return describe(size) + (stride == usual ? "" : ", stride " + shown(stride));
  };
  if (const auto* layer = std::get_if<ConvolutionLayer>(&kind)) {
    std::string text = window(layer->kernelSize, layer->options.stride, 1);
    if (layer->options.dilation != 1) text += ", dilation " + shown(layer->options.dilation);
    if (layer->options.groups != 1) text += ", " + std::to_string(layer->options.groups) + " groups";
    return text;
  }
  if (const auto* layer = std::get_if<TransposedConvolutionLayer>(&kind))
    return window(layer->kernelSize, layer->options.stride, 1);
  const auto pool = [&](const auto& layer) {
    const Sides stride = layer.options.stride == 0 ? layer.kernelSize : layer.options.stride;
    return window(layer.kernelSize, stride, layer.kernelSize);
  };
  if (const auto* layer = std::get_if<MaxPoolLayer>(&kind)) return pool(*layer);
  if (const auto* layer = std::get_if<AveragePoolLayer>(&kind)) return pool(*layer);
  if (const auto* layer = std::get_if<NormPoolLayer>(&kind)) return pool(*layer);
  return {};
}

class NetworkDrawing {
 public:
  explicit NetworkDrawing(const Network& network) : network_(network), layers_(network.layers()) {
    makeBoxes();
    placeBoxes();
    makeEdges();
    findGroups();
    measure();
  }

  std::string draw() {
    const std::string title = "Network: " + describe(network_.inputShape()) + " to " +
                              describe(network_.outputShape()) + ", " +
                              std::to_string(network_.parameterCount()) + " parameters";
    const double width =
        std::max(laneLeft_.back() + margin, 2 * margin + 9.5 * static_cast<double>(title.size()));
    svg_.begin(width, rowTop_.back() + margin - rowGap, title);
    svg_.words({margin, 26}, "start", 15, textColor, title, {{"font-weight", "bold"}});
    svg_.open("marker", {{"id", "arrow"},
                         {"viewBox", "0 0 8 8"},
                         {"refX", "7"},
                         {"refY", "4"},
                         {"markerWidth", "7"},
                         {"markerHeight", "7"},
                         {"orient", "auto"}});
    svg_.element("path", {{"d", "M0 0L8 4L0 8z"}, {"fill", edgeColor}});
    svg_.close();
    for (const auto& [name, boxes] : groups_) drawGroup(name, boxes.first, boxes.second);  // outer ones first
    for (const Edge& edge : edges_) drawEdge(edge);
    for (const Box& box : boxes_) drawBox(box);
    svg_.close();
    return svg_.text();
  }

 private:
  void makeBoxes() {
    std::vector<std::size_t> uses(layers_.size());
    for (const Layer& layer : layers_)
      for (const std::size_t input : layer.inputs) ++uses[input];
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const bool continues = i > 0 && continuesBox(layer.kind) && uses[layer.inputs.front()] == 1 &&
                             boxes_[boxOf_[layer.inputs.front()]].layers.back() == layer.inputs.front();
      if (!continues) boxes_.emplace_back();
      boxOf_.push_back(continues ? boxOf_[layer.inputs.front()] : boxes_.size() - 1);
      boxes_[boxOf_.back()].layers.push_back(i);
    }
  }

  /// Each below the boxes it needs; in the lane of its first input where that is free.
  void placeBoxes() {
    for (std::size_t i = 1; i < boxes_.size(); ++i) {
      Box& box = boxes_[i];
      for (const std::size_t input : inputsOf(box)) box.row = std::max(box.row, boxes_[input].row + 1);
    }
    std::vector<bool> isContinued(boxes_.size());
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      Box& box = boxes_[i];
      std::size_t lane = 0;
      for (const std::size_t input : inputsOf(box)) {
        lane = boxes_[input].lane + (isContinued[input] ? 1 : 0);
        isContinued[input] = true;
        break;
      }
      if (joins(firstOf(box).kind))
        for (const std::size_t input : inputsOf(box)) lane = std::min(lane, boxes_[input].lane);
      box.lane = lanes_.takeFree(lane, box.row, box.row);
    }
  }

  void makeEdges() {
    for (std::size_t i = 0; i < boxes_.size(); ++i)
      for (const std::size_t input : inputsOf(boxes_[i])) edges_.push_back({input, i});
    // The shortest first: they lie inside the others.
    std::ranges::stable_sort(edges_, {}, [&](const Edge& edge) { return span(edge); });
    boxLanes_ = lanes_.count();
    for (Edge& edge : edges_) {
      const Box& from = boxes_[edge.from];
      const Box& to = boxes_[edge.to];
      if (to.row - from.row < 2) continue;
      const std::size_t lane = from.lane == to.lane ? from.lane : std::max(from.lane, to.lane);
      if (lanes_.isFree(lane, from.row + 1, to.row - 1))
        lanes_.take(lane, from.row + 1, to.row - 1);
      else
        edge.lane = lanes_.takeFree(lane + 1, from.row + 1, to.row - 1);
    }
  }
  [[nodiscard]] std::size_t span(const Edge& edge) const {
    return boxes_[edge.to].row - boxes_[edge.from].row;
  }

  void measure() {
    std::size_t rows = 0;
    for (const Box& box : boxes_) rows = std::max(rows, box.row + 1);
    std::vector<double> heights(rows);
    for (const Box& box : boxes_) heights[box.row] = std::max(heights[box.row], heightOf(box));
    rowTop_ = {titleHeight + margin / 2};
    for (const double height : heights) rowTop_.push_back(rowTop_.back() + height + rowGap);
    laneLeft_ = {margin};
    for (std::size_t lane = 0; lane < lanes_.count(); ++lane)
      laneLeft_.push_back(laneLeft_.back() + (lane < boxLanes_ ? boxWidth + laneGap : edgeLaneWidth));
  }

  static double heightOf(const Box& box) {
    return lineHeight * static_cast<double>(box.layers.size()) + 2 * boxPadding;
  }
  [[nodiscard]] const Layer& firstOf(const Box& box) const { return layers_[box.layers.front()]; }
  [[nodiscard]] std::vector<std::size_t> inputsOf(const Box& box) const {
    std::vector<std::size_t> inputs;
    for (const std::size_t input : firstOf(box).inputs) inputs.push_back(boxOf_[input]);
    return inputs;
  }

  /// The layers of a block: those whose labels agree up to the last point, and what lies between and joins them.
  void findGroups() {
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      std::string group = groupOf(firstOf(boxes_[i]).label);
      while (!group.empty()) {
        groups_.try_emplace(group, i, i).first->second.second = i;
        group = groupOf(group);
      }
    }
    std::erase_if(groups_, [](const auto& group) { return group.second.first == group.second.second; });
    for (auto& [name, range] : groups_)
      while (range.second + 1 < boxes_.size() && joins(firstOf(boxes_[range.second + 1]).kind) &&
             !firstOf(boxes_[range.second + 1]).hasGivenLabel)
        ++range.second;
  }

  /// Without what the frame around it says.
  [[nodiscard]] std::string labelInFrame(const std::string& label) const {
    std::string group = groupOf(label);
    while (!group.empty() && !groups_.contains(group)) group = groupOf(group);
    return group.empty() ? label : label.substr(group.size() + 1);
  }

  void drawGroup(const std::string& name, std::size_t first, std::size_t last) {
    const bool isOuter = groupOf(name).empty();
    const double room = isOuter ? 16 : 10;
    const double roomForName = isOuter ? 26 : 14;
    double left = 1e9;
    double right = 0;
    double top = 1e9;
    double bottom = 0;
    for (std::size_t i = first; i <= last; ++i) {
      const auto [x, y] = cornerOf(boxes_[i]);
      left = std::min(left, x);
      right = std::max(right, x + boxWidth);
      top = std::min(top, y);
      bottom = std::max(bottom, y + heightOf(boxes_[i]));
    }
    svg_.rectangle({left - room, top - roomForName},
                   {right - left + 2 * room, bottom - top + roomForName + room},
                   {{"rx", "6"}, {"fill", isOuter ? groupColor : "#ffffff"}, {"stroke", groupBorder}});
    svg_.words({right + room - 5, top - roomForName + 11}, "end", 10, fadedColor, name,
               {{"font-style", "italic"}});
  }

  [[nodiscard]] Point cornerOf(const Box& box) const { return {laneLeft_[box.lane], rowTop_[box.row]}; }

  void drawBox(const Box& box) {
    const auto [x, y] = cornerOf(box);
    const double height = heightOf(box);
    svg_.rectangle({x, y}, {boxWidth, height},
                   {{"rx", "4"}, {"fill", colorOf(firstOf(box).kind)}, {"stroke", edgeColor}});
    double baseline = y + boxPadding + 11.5;
    for (const std::size_t index : box.layers) {
      const Layer& layer = layers_[index];
      const std::string more = details(layer.kind);
      const std::string kind = nameOf(layer.kind);
      const std::string label = labelInFrame(layer.label);
      const std::string name = label.starts_with(kind) ? label : label + ": " + kind;
      const bool isLast = index == box.layers.back();
      const double shapeRoom =
          isLast ? characterWidth * static_cast<double>(describe(layer.shape).size()) + 8 : 0;
      svg_.words({x + 8, baseline}, "start", fontSize, textColor,
                 shortened(more.empty() ? name : name + " " + more, boxWidth - 16 - shapeRoom));
      if (isLast)
        svg_.words({x + boxWidth - 8, baseline}, "end", fontSize, fadedColor, describe(layer.shape));
      baseline += lineHeight;
    }
  }

  static std::string shortened(const std::string& text, double width) {
    const auto most = static_cast<std::size_t>(width / characterWidth);
    return text.size() <= most ? text : text.substr(0, most - 1) + "…";
  }

  void drawEdge(const Edge& edge) {
    const Box& from = boxes_[edge.from];
    const Box& to = boxes_[edge.to];
    const auto [fromX, fromY] = cornerOf(from);
    const auto [toX, toY] = cornerOf(to);
    const Point begin{fromX + boxWidth / 2, fromY + heightOf(from)};
    // Beside each other where several arrive.
    const auto inputs = inputsOf(to);
    const auto place = static_cast<double>(std::ranges::find(inputs, edge.from) - inputs.begin());
    const Point end{toX + boxWidth * (place + 1) / static_cast<double>(inputs.size() + 1), toY};
    std::string path = "M" + at(begin);
    const double bend = rowGap * 0.6;
    if (edge.lane) {
      const double x = laneLeft_[*edge.lane] + (*edge.lane < boxLanes_ ? boxWidth : edgeLaneWidth) / 2;
      path += curve(begin, {x, begin.second + rowGap}, bend) + "L" + at({x, end.second - rowGap}) +
              curve({x, end.second - rowGap}, end, bend);
    } else if (span(edge) > 1 && from.lane != to.lane) {
      const double x = from.lane > to.lane ? begin.first : end.first;
      path += curve(begin, {x, begin.second + rowGap}, bend) + "L" + at({x, end.second - rowGap}) +
              curve({x, end.second - rowGap}, end, bend);
    } else {
      path += curve(begin, end, bend);
    }
    svg_.element("path", {{"d", path},
                          {"fill", "none"},
                          {"stroke", edgeColor},
                          {"stroke-width", "1.5"},
                          {"marker-end", "url(#arrow)"}});
  }
  static std::string at(const Point& point) { return pixels(point.first) + " " + pixels(point.second); }
  static std::string curve(const Point& from, const Point& to, double bend) {
    return "C" + at({from.first, from.second + bend}) + " " + at({to.first, to.second - bend}) + " " + at(to);
  }

  const Network& network_;
  const std::vector<Layer>& layers_;
  std::vector<Box> boxes_;
  std::vector<std::size_t> boxOf_;  ///< of each layer
  std::vector<Edge> edges_;
  Lanes lanes_;
  std::size_t boxLanes_ = 0;  ///< the lanes with boxes; those behind them have edges alone
  std::vector<double> rowTop_;
  std::vector<double> laneLeft_;
  std::map<std::string, std::pair<std::size_t, std::size_t>> groups_;  ///< first and last box
  SvgWriter svg_;
};

}  // namespace

std::string Network::drawing() const {
  return NetworkDrawing(*this).draw();
}

}  // namespace unmetal::train
