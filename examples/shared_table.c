/* SPDX-License-Identifier: MIT */
/*
 * shared_table: the CPU and a device update one table in a file, in turns.
 *
 *	example-shared_table [--device cuda:0|vgpu:0|emu:0|host] [--rows N] [--turns N] FILE
 *
 * The table is an array of 8-byte counters, made if the file is not there. In each turn the CPU adds 1 to every 1000th row
 * through its mapping of the file, and then a kernel adds 1000 to every 1500th row through its copy, on a stream. Neither
 * reads or writes the file, and only the 4 KiB granules that changed are copied: the last line says how many bytes that was.
 * At the end the file is checked.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <strait/mapping.h>
#include <strait/strait.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CPU_EVERY 1000u
#define DEVICE_EVERY 1500u
#define CPU_ADDS 1u
#define DEVICE_ADDS 1000u

/* The argument of the kernel. */
struct update {
	uint64_t *table; /* on the device */
	uint64_t rows, every, add;
};

static int fail(const char *what, int code)
{
	fprintf(stderr, "shared_table: %s: %s\n", what, strerror(abs(code)));
	return 1;
}

/* The kernel, on the CPU and on devices whose kernels are functions. */
static void update(void *arg)
{
	struct update *u = arg;

	for (uint64_t row = 0; row < u->rows; row += u->every)
		u->table[row] += u->add;
}

/* The same for a GPU: a thread for each row to update. */
static const char kernel[] = ".version 6.0\n"
			     ".target sm_50\n"
			     ".address_size 64\n"
			     ".visible .entry update(.param .align 8 .b8 update_args[32])\n"
			     "{\n"
			     "	.reg .pred %p<2>;\n"
			     "	.reg .b32 %r<5>;\n"
			     "	.reg .b64 %rd<12>;\n"
			     "	ld.param.u64 %rd1, [update_args];\n"	/* table */
			     "	ld.param.u64 %rd2, [update_args+8];\n"	/* rows */
			     "	ld.param.u64 %rd3, [update_args+16];\n" /* every */
			     "	ld.param.u64 %rd4, [update_args+24];\n" /* add */
			     "	mov.u32 %r1, %ctaid.x;\n"
			     "	mov.u32 %r2, %ntid.x;\n"
			     "	mov.u32 %r3, %tid.x;\n"
			     "	mad.lo.u32 %r4, %r1, %r2, %r3;\n"
			     "	cvt.u64.u32 %rd5, %r4;\n"
			     "	mul.lo.u64 %rd6, %rd5, %rd3;\n"
			     "	setp.ge.u64 %p1, %rd6, %rd2;\n"
			     "	@%p1 bra $over;\n"
			     "	cvta.to.global.u64 %rd7, %rd1;\n"
			     "	shl.b64 %rd8, %rd6, 3;\n"
			     "	add.u64 %rd9, %rd7, %rd8;\n"
			     "	ld.global.u64 %rd10, [%rd9];\n"
			     "	add.u64 %rd11, %rd10, %rd4;\n"
			     "	st.global.u64 [%rd9], %rd11;\n"
			     "$over:\n"
			     "	ret;\n"
			     "}\n";

static struct {
	int (*init)(unsigned int flags);
	int (*retain)(void **context, int device);
	int (*set_current)(void *context);
	int (*stream)(void **stream, unsigned int flags);
	int (*load)(void **module, const void *image);
	int (*function)(void **function, void *module, const char *name);
	int (*launch)(void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
		      unsigned int by, unsigned int bz, unsigned int shared, void *stream, void **params, void **extra);
	void *native, *update;
} cu;

static int cuda_open(void)
{
	static const char *const names[] = { "cuInit",	       "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",
					     "cuStreamCreate", "cuModuleLoadData",	   "cuModuleGetFunction",
					     "cuLaunchKernel" };
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *ctx, *module, **to = (void **)&cu;

	for (size_t i = 0; lib && i < sizeof(names) / sizeof(names[0]); i++)
		if (!(to[i] = dlsym(lib, names[i])))
			return -ENOSYS;
	if (!lib || cu.init(0))
		return -ENODEV;
	if (cu.retain(&ctx, 0) || cu.set_current(ctx) || cu.stream(&cu.native, 1) || cu.load(&module, kernel) ||
	    cu.function(&cu.update, module, "update"))
		return -EIO;
	return 0;
}

/* Puts the kernel on the stream. */
static int launch(struct strait_stream *s, struct update *u)
{
	void *params[] = { u };

	if (!cu.update)
		return strait_stream_call(s, update, u);
	return cu.launch(cu.update, (unsigned int)(u->rows / u->every / 256 + 1), 1, 1, 256, 1, 1, 0, cu.native, params,
			 NULL) ?
		       -EIO :
		       0;
}

static int cpu_turn(struct strait_mapping *m, uint64_t rows)
{
	struct update u = { .rows = rows, .every = CPU_EVERY, .add = CPU_ADDS };
	uint64_t len = rows * sizeof(uint64_t);
	int rc;

	rc = strait_mapping_acquire(m, NULL, 0, len, STRAIT_INTENT_WRITE, (void **)&u.table);
	if (rc)
		return rc;
	update(&u);
	return strait_mapping_release(m, NULL, 0, len, STRAIT_INTENT_WRITE);
}

/* All of it is put on the stream, and runs there in order. */
static int device_turn(struct strait_mapping *m, struct strait_stream *s, uint64_t rows)
{
	struct update u = { .rows = rows, .every = DEVICE_EVERY, .add = DEVICE_ADDS };
	uint64_t len = rows * sizeof(uint64_t);
	int rc, acquired = 0, released = 0;

	rc = strait_mapping_acquire_on(m, s, 0, len, STRAIT_INTENT_WRITE, (void **)&u.table, &acquired);
	if (rc)
		return rc;
	rc = launch(s, &u);
	if (!rc)
		rc = strait_mapping_release_on(m, s, 0, len, STRAIT_INTENT_WRITE, &released);
	if (!rc)
		rc = strait_stream_wait(s, STRAIT_FOREVER);
	return rc ? rc : acquired ? acquired : released;
}

/* Is every row what the turns make of it? */
static int check(const char *path, uint64_t rows, uint64_t turns)
{
	uint64_t buf[4096], row = 0, wrong = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	while (row < rows && (n = pread(fd, buf, sizeof(buf), (off_t)(row * 8))) > 0)
		for (ssize_t i = 0; i < n / 8 && row < rows; i++, row++)
			wrong += buf[i] !=
				 turns * ((row % CPU_EVERY ? 0 : CPU_ADDS) + (row % DEVICE_EVERY ? 0 : DEVICE_ADDS));
	close(fd);
	if (wrong || row < rows)
		fprintf(stderr, "shared_table: %llu rows are wrong\n", (unsigned long long)(wrong + rows - row));
	return wrong || row < rows;
}

static int run(struct strait_context *ctx, const char *name, const char *path, uint64_t rows, uint64_t turns)
{
	struct strait_mapping_info info = { .size = sizeof(info) };
	struct strait_endpoint *ep = NULL;
	struct strait_mapping *m = NULL;
	struct strait_stream *s = NULL;
	struct strait_device *dev;
	int rc;

	if (!strncmp(name, "cuda", 4) && (rc = cuda_open()))
		return fail("CUDA", rc);
	rc = strait_device_find(ctx, name, &dev);
	if (rc)
		return fail(name, rc);
	rc = strait_file_open(ctx, path, O_RDWR | O_CLOEXEC, 0, 0, &ep);
	if (!rc)
		rc = strait_mapping_open(ctx, ep, 0, rows * sizeof(uint64_t), NULL, &m);
	if (!rc)
		rc = cu.update ? strait_stream_import(dev, cu.native, &s) : strait_stream_open(dev, &s);
	for (uint64_t i = 0; i < turns && !rc; i++) {
		rc = cpu_turn(m, rows);
		if (!rc)
			rc = device_turn(m, s, rows);
	}
	if (!rc)
		rc = strait_mapping_sync(m, 0, rows * sizeof(uint64_t));
	if (!rc)
		rc = strait_mapping_info(m, &info);
	strait_stream_close(s);
	strait_mapping_close(m);
	strait_endpoint_close(ep);
	if (rc)
		return fail(path, rc);
	printf("%s: %llu turns over %.1f MiB: %.2f MiB to the device, %.2f MiB back\n", name, (unsigned long long)turns,
	       (double)rows * 8 / 1048576, (double)info.to_device_bytes / 1048576,
	       (double)info.to_host_bytes / 1048576);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = "emu:0", *path = NULL;
	uint64_t rows = 1 << 20, turns = 10;
	struct strait_context *ctx;
	int rc, fd;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--device") && i + 1 < argc)
			name = argv[++i];
		else if (!strcmp(argv[i], "--rows") && i + 1 < argc)
			rows = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--turns") && i + 1 < argc)
			turns = strtoull(argv[++i], NULL, 0);
		else
			path = argv[i];
	}
	if (!path || !rows) {
		fprintf(stderr, "usage: shared_table [--device DEVICE] [--rows N] [--turns N] FILE\n");
		return 2;
	}
	/* An empty table: every row is 0. */
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)(rows * sizeof(uint64_t))))
		return fail(path, errno);
	close(fd);
	rc = strait_context_open(NULL, &ctx);
	if (rc)
		return fail("strait_context_open", rc);
	rc = run(ctx, name, path, rows, turns);
	strait_context_close(ctx);
	return rc ? rc : check(path, rows, turns);
}
