/* SPDX-License-Identifier: MIT */
/*
 * strrev: reverse the bytes of a file in device memory, through cuFile.
 *
 *	example-strrev [--device cuda|vgpu|emu|host] FILE
 *
 * Reads FILE into device memory with cuFileRead(), reverses it there, writes it back with cuFileWrite(), and prints
 * what it was and what it is. A file that is not there is made, with "Hello, GDS World!" in it; run again, the text
 * is as it was. The device is the best one there is: a GPU, whose driver is opened and given the kernel below, the
 * GPU of the lab, or the emulated device; a kernel of those is a function.
 */
#include <cufile.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <strait/emu.h>
#include <strait/interpose.h>
#include <strait/strait.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HELLO "Hello, GDS World!"
#define SHOWN 60

struct text {
	char *at; /* in device memory, but on the host */
	size_t n;
};

/* A place for the text, and how to reverse it there. */
struct device {
	const char *name;
	int (*open)(void);
	void *(*alloc)(size_t n);
	int (*reverse)(struct text *t);
	void (*free)(void *at);
};

static int fail(const char *what, int code)
{
	fprintf(stderr, "strrev: %s: %s\n", what, IS_CUFILE_ERR(code) ? CUFILE_ERRSTR(code) : strerror(abs(code)));
	return 1;
}

/* The host, and as a kernel of the emulated device. */
static void reverse(void *arg)
{
	struct text *t = arg;

	for (size_t i = 0; i < t->n / 2; i++) {
		char c = t->at[i];

		t->at[i] = t->at[t->n - 1 - i];
		t->at[t->n - 1 - i] = c;
	}
}

static int host_open(void)
{
	return 0;
}

static void *host_alloc(size_t n)
{
	return malloc(n);
}

static int host_reverse(struct text *t)
{
	reverse(t);
	return 0;
}

/* Devices whose kernels are functions: cuFile knows memory that was allocated in its own context. */
static struct strait_context *context;
static struct strait_device *emulated;
static struct strait_region *region;

static int device_open(const char *name)
{
	int rc = strait_context_shared(&context);

	return rc ? rc : strait_device_find(context, name, &emulated);
}

static int emu_open(void)
{
	return device_open("emu:0");
}

static int vgpu_open(void)
{
	return device_open("vgpu:0");
}

/* Its memory is seen by the CPU, and known by where. */
static void *vgpu_alloc(size_t n)
{
	void *at = NULL;

	return strait_region_alloc(emulated, n, &region) || strait_region_map(region, &at) ? NULL : at;
}

static void vgpu_free(void *at)
{
	(void)at;
	strait_region_close(region);
	strait_context_close(context);
}

static void *emu_alloc(size_t n)
{
	void *at = NULL;

	return strait_emu_malloc(emulated, n, &at) ? NULL : at;
}

static int emu_reverse(struct text *t)
{
	struct strait_stream *s;
	int rc = strait_stream_open(emulated, &s);

	if (rc)
		return rc;
	rc = strait_stream_call(s, reverse, t);
	if (!rc)
		rc = strait_stream_wait(s, STRAIT_FOREVER);
	strait_stream_close(s);
	return rc;
}

static void emu_free(void *at)
{
	strait_emu_free(emulated, at);
	strait_context_close(context);
}

/* A GPU. */
static const char kernel[] = ".version 6.0\n"
			     ".target sm_50\n"
			     ".address_size 64\n"
			     ".visible .entry strrev(.param .align 8 .b8 strrev_args[16])\n"
			     "{\n"
			     "	.reg .pred %p<2>;\n"
			     "	.reg .b16 %rs<3>;\n"
			     "	.reg .b32 %r<4>;\n"
			     "	.reg .b64 %rd<10>;\n"
			     "	ld.param.u64 %rd1, [strrev_args];\n"   /* the text */
			     "	ld.param.u64 %rd2, [strrev_args+8];\n" /* its length */
			     "	cvta.to.global.u64 %rd3, %rd1;\n"
			     "	mov.u32 %r1, %ctaid.x;\n"
			     "	mov.u32 %r2, %ntid.x;\n"
			     "	mov.u32 %r3, %tid.x;\n"
			     "	mul.wide.u32 %rd4, %r1, %r2;\n"
			     "	cvt.u64.u32 %rd5, %r3;\n"
			     "	add.s64 %rd6, %rd4, %rd5;\n" /* each thread exchanges two bytes */
			     "	shr.u64 %rd7, %rd2, 1;\n"
			     "	setp.ge.u64 %p1, %rd6, %rd7;\n"
			     "	@%p1 bra $over;\n"
			     "	add.s64 %rd8, %rd3, %rd6;\n"
			     "	sub.s64 %rd9, %rd2, %rd6;\n"
			     "	add.s64 %rd9, %rd9, %rd3;\n"
			     "	ld.global.u8 %rs1, [%rd8];\n"
			     "	ld.global.u8 %rs2, [%rd9+-1];\n"
			     "	st.global.u8 [%rd8], %rs2;\n"
			     "	st.global.u8 [%rd9+-1], %rs1;\n"
			     "$over:\n"
			     "	ret;\n"
			     "}\n";

static struct {
	int (*init)(unsigned int flags);
	int (*count)(int *n);
	int (*retain)(void **context, int device);
	int (*set_current)(void *context);
	int (*alloc)(uint64_t *at, size_t n);
	int (*free)(uint64_t at);
	int (*load)(void **module, const void *image);
	int (*function)(void **function, void *module, const char *name);
	int (*launch)(void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
		      unsigned int by, unsigned int bz, unsigned int shared, void *stream, void **params, void **extra);
	int (*synchronize)(void *stream);
	void *reverse;
} cu;

static int cuda_open(void)
{
	static const char *const names[] = {
		"cuInit",	"cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2",
		"cuMemFree_v2", "cuModuleLoadData", "cuModuleGetFunction",	"cuLaunchKernel",  "cuStreamSynchronize"
	};
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *ctx, *module, **to = (void **)&cu;
	int n = 0;

	for (size_t i = 0; lib && i < sizeof(names) / sizeof(names[0]); i++)
		if (!(to[i] = dlsym(lib, names[i])))
			return -ENOSYS;
	if (!lib || cu.init(0) || cu.count(&n) || !n)
		return -ENODEV;
	if (cu.retain(&ctx, 0) || cu.set_current(ctx) || cu.load(&module, kernel) ||
	    cu.function(&cu.reverse, module, "strrev"))
		return -EIO;
	return 0;
}

static void *cuda_alloc(size_t n)
{
	uint64_t at = 0;

	return cu.alloc(&at, n) ? NULL : (void *)(uintptr_t)at;
}

static int cuda_reverse(struct text *t)
{
	struct {
		uint64_t text, n;
	} args = { (uintptr_t)t->at, t->n };
	void *params[] = { &args };

	if (cu.launch(cu.reverse, (unsigned int)(t->n / 512 + 1), 1, 1, 256, 1, 1, 0, NULL, params, NULL) ||
	    cu.synchronize(NULL))
		return -EIO;
	return 0;
}

static void cuda_free(void *at)
{
	cu.free((uintptr_t)at);
}

static const struct device devices[] = {
	{ "cuda", cuda_open, cuda_alloc, cuda_reverse, cuda_free },
	{ "vgpu", vgpu_open, vgpu_alloc, emu_reverse, vgpu_free },
	{ "emu", emu_open, emu_alloc, emu_reverse, emu_free },
	{ "host", host_open, host_alloc, host_reverse, free },
};

static const struct device *choose(const char *name)
{
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		if ((!name || !strcmp(name, devices[i].name)) && !devices[i].open())
			return &devices[i];
	return NULL;
}

static void show(int fd, const char *what)
{
	char text[SHOWN];
	ssize_t n = pread(fd, text, sizeof(text), 0);

	while (n > 0 && text[n - 1] == '\n')
		n--;
	printf("%s: %.*s\n", what, n < 0 ? 0 : (int)n, text);
}

static int strrev(CUfileHandle_t fh, const struct device *d, size_t n)
{
	struct text t = { d->alloc(n), n };
	int rc = 1;

	if (!t.at)
		return fail(d->name, ENOMEM);
	cuFileBufRegister(t.at, n, 0);
	if (cuFileRead(fh, t.at, n, 0, 0) != (ssize_t)n)
		fail("cuFileRead", errno);
	else if (d->reverse(&t))
		fail(d->name, EIO);
	else if (cuFileWrite(fh, t.at, n, 0, 0) != (ssize_t)n)
		fail("cuFileWrite", errno);
	else
		rc = 0;
	cuFileBufDeregister(t.at);
	d->free(t.at);
	return rc;
}

static int open_file(const char *path, struct stat *st)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0 || fstat(fd, st) || (!st->st_size && pwrite(fd, HELLO, strlen(HELLO), 0) < 0) || fstat(fd, st))
		return -1;
	return fd;
}

int main(int argc, char **argv)
{
	const char *name = argc == 4 && !strcmp(argv[1], "--device") ? argv[2] : NULL;
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	const struct device *d;
	CUfileHandle_t fh;
	CUfileError_t e;
	struct stat st;
	int rc;

	if (argc != (name ? 4 : 2)) {
		fprintf(stderr, "usage: strrev [--device cuda|vgpu|emu|host] FILE\n");
		return 2;
	}
	descr.handle.fd = open_file(argv[argc - 1], &st);
	if (descr.handle.fd < 0)
		return fail(argv[argc - 1], errno);
	e = cuFileDriverOpen();
	if (e.err)
		return fail("cuFileDriverOpen", e.err);
	d = choose(name);
	if (!d)
		return fail(name ? name : "no device", ENODEV);
	e = cuFileHandleRegister(&fh, &descr);
	if (e.err)
		return fail("cuFileHandleRegister", e.err);
	show(descr.handle.fd, "before");
	rc = strrev(fh, d, (size_t)st.st_size);
	show(descr.handle.fd, d->name);
	cuFileHandleDeregister(fh);
	cuFileDriverClose();
	close(descr.handle.fd);
	return rc;
}
