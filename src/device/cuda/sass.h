/* SPDX-License-Identifier: MIT */
/* Made by scripts/build-device-code from src/device/cuda/ptx.h, without ptxas: edit neither. */
#ifndef DEVICE_CUDA_SASS_H
#define DEVICE_CUDA_SASS_H

#include "device/cuda/kernel.h"

/* clang-format off */
/* SHA-256 of the PTX text */
#define CUDA_SASS_OF "e2ab5abbb47a623379b8a1d0d3849996c268427f6c5269034311cf2f235f6f52"

/* In ascending order; the last has no image. */
static const struct cuda_sass cuda_sass[] = {
	{ 0, NULL },
};
/* clang-format on */

#endif
