#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "mps/matrix/matrix_problem.hpp"

/// What the back ends share of the random fills.
namespace mps::detail {

/// MatrixRandomProblem's distribution, ready to be applied.
struct RandomRule {
  RandomNumbers numbers = RandomNumbers::Words;
  bool isConstant = false;  ///< every number is `minimum`
  float minimum = 0;
  float maximum = 0;
  float range = 0;         ///< uniform: maximum - minimum
  float belowMaximum = 0;  ///< uniform
  double mean = 0;
  double scale = 0;  ///< normal: the standard deviation; negative when u is counted from above
  double first = 0;  ///< normal: u = first + width t
  double width = 1;
  double least = 0;  ///< normal: the smallest u
};
RandomRule ruleOf(const MatrixRandomProblem& problem);

/// Quotients of polynomials, lowest power first, of algorithm AS 241 (Wichura 1988).
struct NormalQuantileCoefficients {
  double centre[8]{3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                   1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                   3.3430575583588128105e+4, 2.5090809287301226727e+3};
  double underCentre[8]{1.0,
                        4.2313330701600911252e+1,
                        6.8718700749205790830e+2,
                        5.3941960214247511077e+3,
                        2.1213794301586595867e+4,
                        3.9307895800092710610e+4,
                        2.8729085735721942674e+4,
                        5.2264952788528545610e+3};
  double near[8]{1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                 3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  double underNear[8]{1.0,
                      2.05319162663775882187e0,
                      1.67638483018380384940e0,
                      6.89767334985100004550e-1,
                      1.48103976427480074590e-1,
                      1.51986665636164571966e-2,
                      5.47593808499534494600e-4,
                      1.05075007164441684324e-9};
  double far[8]{6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                2.71155556874348757815e-5, 2.01033439929228813265e-7};
  double underFar[8]{1.0,
                     5.99832206555887937690e-1,
                     1.36929880922735805310e-1,
                     1.48753612908506148525e-2,
                     7.86869131145613259100e-4,
                     1.84631831751005468180e-5,
                     1.42151175831644588870e-7,
                     2.04426310338993978564e-15};
};

/// Word n + kMTGP32StateWords follows from words n, n + 1 and n + position.
struct MTGP32Constants {
  std::size_t position = 84;
  int shift1 = 12;
  int shift2 = 4;
  std::uint32_t mask = 0xFFF80000;
  /// Entries 1, 2, 4 and 8 of the two tables, which are linear over exclusive or.
  std::array<std::uint32_t, 4> recursion{0x71588353, 0xDFA887C1, 0x4BA66C6E, 0xA53DA0AE};
  std::array<std::uint32_t, 4> tempering{0x200040BB, 0x1082C61E, 0x10021C03, 0x0003F0B9};
};

}  // namespace mps::detail
