#pragma once

/// Networks, data sets and a trainer, in the namespace unmetal::train, and ONNX files in unmetal::onnx. It brings of unmetal.hpp what they are made of.
#include "onnx/export.hpp"
#include "onnx/import.hpp"
#include "train/augmentation.hpp"
#include "train/dataset.hpp"
#include "train/evaluation.hpp"
#include "train/layers.hpp"
#include "train/learning_rate_finder.hpp"
#include "train/network.hpp"
#include "train/normalization.hpp"
#include "train/pictures/picture.hpp"
#include "train/pictures/picture_folder.hpp"
#include "train/pictures/synthetic.hpp"
#include "train/schedule.hpp"
#include "train/trainer.hpp"
