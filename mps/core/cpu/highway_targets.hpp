#pragma once

/// Instruction sets that vector code is compiled for: SSE4, AVX2, AVX-512 and NEON, beside the plain
/// fallback. Each one compiles the file again, so the rest is left out: a processor that has one of those
/// runs the next best of these (SSSE3 the fallback, AVX-512's later extensions AVX-512, SVE NEON). Include
/// this before any Highway header.
#ifdef HIGHWAY_HWY_DETECT_TARGETS_H_
#error "include mps/core/cpu/highway_targets.hpp before Highway's headers"
#endif

/// Instruction sets that are left out, so that every version of Highway runs the code that is written for AVX3 and NEON.
/// They are what Highway 1.0.3 knows beyond these, and the bits of what later versions have: AVX3_ZEN4, AVX3_SPR and
/// AVX10_2 beyond AVX3_DL, NEON_BF16 (bit 26) beyond NEON.
#define UNMETAL_OTHER_TARGETS \
  (0x7F | 1LL << 26 | HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

/// Sanitized builds leave SSE4 and AVX-512 out, too, and on x86 the fallback (cmake/targets.cmake). A sanitizer
/// multiplies the time that each set compiles. It sees the loads and stores of AVX2, which are plain accesses to the
/// compiler, but not AVX-512's masked ones, which are builtins.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HWY_DISABLED_TARGETS (UNMETAL_OTHER_TARGETS | HWY_SSE4 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS UNMETAL_OTHER_TARGETS
#endif

/// GCC inlines the emulated vectors until one file takes more than nine minutes; its fallback is the one without
/// vectors, which is Highway's own choice up to GCC 12.2.
#if defined(__GNUC__) && !defined(__clang__)
#define HWY_BROKEN_EMU128 1
#endif
