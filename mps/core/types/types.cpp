#include "mps/core/types/types.hpp"

namespace mps {

const char* name(ImageEdgeMode mode) {
  switch (mode) {
    case ImageEdgeMode::Zero:
      return "Zero";
    case ImageEdgeMode::Clamp:
      return "Clamp";
    case ImageEdgeMode::Mirror:
      return "Mirror";
    case ImageEdgeMode::MirrorWithEdge:
      return "MirrorWithEdge";
    case ImageEdgeMode::Constant:
      return "Constant";
  }
  return "unknown";
}

const char* name(ImageFeatureChannelFormat format) {
  switch (format) {
    case ImageFeatureChannelFormat::None:
      return "none";
    case ImageFeatureChannelFormat::Unorm8:
      return "unorm8";
    case ImageFeatureChannelFormat::Unorm16:
      return "unorm16";
    case ImageFeatureChannelFormat::Float16:
      return "float16";
    case ImageFeatureChannelFormat::Float32:
      return "float32";
  }
  return "unknown";
}

const char* name(DataType type) {
  switch (type) {
    case DataType::Invalid:
      return "Invalid";
    case DataType::FloatBit:
      return "FloatBit";
    case DataType::Float32:
      return "Float32";
    case DataType::Float16:
      return "Float16";
    case DataType::SignedBit:
      return "SignedBit";
    case DataType::Int8:
      return "Int8";
    case DataType::Int16:
      return "Int16";
    case DataType::Int32:
      return "Int32";
    case DataType::Int64:
      return "Int64";
    case DataType::UInt8:
      return "UInt8";
    case DataType::UInt16:
      return "UInt16";
    case DataType::UInt32:
      return "UInt32";
    case DataType::UInt64:
      return "UInt64";
    case DataType::NormalizedBit:
      return "NormalizedBit";
    case DataType::Unorm1:
      return "Unorm1";
    case DataType::Unorm8:
      return "Unorm8";
  }
  return "unknown";
}

}  // namespace mps
