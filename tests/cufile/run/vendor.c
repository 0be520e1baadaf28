/* SPDX-License-Identifier: MIT */
/* Another libcufile, for tests of `strait run`: it refuses every file. */
#include <cufile.h>

#pragma GCC visibility push(default)

CUfileError_t cuFileGetVersion(int *version)
{
	*version = 42;
	return (CUfileError_t){ .err = CU_FILE_SUCCESS };
}

CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr)
{
	return (CUfileError_t){ .err = CU_FILE_INTERNAL_ERROR };
}

ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t file_offset, off_t buf_offset)
{
	return -1;
}

ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t file_offset, off_t buf_offset)
{
	return -1;
}
