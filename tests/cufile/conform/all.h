/* SPDX-License-Identifier: MIT */
/* All tests of cuFile's behaviour. Included once, after memories and its functions. */
#include "cufile/conform/batch.h"
#include "cufile/conform/buffer.h"
#include "cufile/conform/driver.h"
#include "cufile/conform/handle.h"
#include "cufile/conform/io.h"
#include "cufile/conform/stream.h"
