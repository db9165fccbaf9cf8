#pragma once

/// All of unmetal and checkGradients, which compares the gradients of a graph with float64 references and central
/// differences. It lies in a library of its own, unmetal::conform:
///
///     find_package(unmetal REQUIRED COMPONENTS conform)
///     target_link_libraries(program PRIVATE unmetal::conform)
#include "mps/conform/check_gradients.hpp"
#include "unmetal.hpp"
