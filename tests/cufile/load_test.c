/* SPDX-License-Identifier: MIT */
/* The shared library as programs load it, and its header. */
#include "cufile/common.h"

TEST(loads_and_moves_bytes)
{
	void *lib = open_library("libcufile.so.0");
	unsigned char *want = pattern_new(0, 100000, 1), *buf = calloc(1, 100000);
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	CUfileHandle_t fh;

	LOAD(lib, cuFileHandleRegister);
	LOAD(lib, cuFileHandleDeregister);
	LOAD(lib, cuFileRead);
	LOAD(lib, cuFileDriverClose_v2);
	LOAD(lib, cuFileGetVersion);
	int version = 0;

	ASSERT_CU(cuFileGetVersion_p(&version));
	ASSERT_EQ(version, 1150);
	d.handle.fd = open(make_file("file", 100000, 1), O_RDONLY);
	ASSERT_CU(cuFileHandleRegister_p(&fh, &d));
	ASSERT_EQ(cuFileRead_p(fh, buf, 100000, 0, 0), 100000);
	ASSERT_MEMEQ(buf, want, 100000);
	cuFileHandleDeregister_p(fh);
	ASSERT_CU(cuFileDriverClose_v2_p());
	ASSERT_EQ(dlclose(lib), 0);
	free(buf);
	free(want);
}

/* @what is a command with "$LIB" in it. */
static void shell(const char *what)
{
	setenv("LIB", built_library("libcufile.so.0"), 1);
	if (system(what))
		FAIL("%s", what);
}

TEST(exports_the_fifty_names)
{
	shell("test $(nm -D --defined-only $LIB | grep -c ' T cuFile') = 50");
	shell("test $(nm -D --defined-only $LIB | wc -l) = 50");
	shell("! nm -D --defined-only $LIB | grep -q @");
	shell("readelf -d $LIB | grep -q 'SONAME.*libcufile.so.0]'");
}
