#pragma once

/// Networks, data sets and a trainer, in the namespace unmetal::train, and ONNX files in unmetal::onnx. It brings of unmetal.hpp what they are made of.
#include "onnx/export.hpp"
#include "onnx/import.hpp"
#include "train/batches/augmentation.hpp"
#include "train/data/dataset.hpp"
#include "train/data/normalization.hpp"
#include "train/data/shape.hpp"
#include "train/network/evaluation.hpp"
#include "train/network/layers.hpp"
#include "train/network/network.hpp"
#include "train/pictures/picture.hpp"
#include "train/pictures/picture_folder.hpp"
#include "train/pictures/synthetic.hpp"
#include "train/training/learning_rate_finder.hpp"
#include "train/training/schedule.hpp"
#include "train/training/trainer.hpp"
