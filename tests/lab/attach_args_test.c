/* SPDX-License-Identifier: MIT */
/* Structs of the module's calls that are shorter or longer than this header's, as of older and newer programs. */
#include "peer.h"

#include <stddef.h>

#define LEN KIB(64)
#define GUARD 0xa5

/* Objects that the calls of the table use. */
static struct {
	struct raw e;
	int file;
	unsigned char *p;
	uint32_t region, peer, map;
	struct strait_run runs[4];
} s;

static void make_import(void *arg)
{
	struct strait_ioc_import *a = arg;

	a->kind = STRAIT_IMPORT_USER;
	a->fd = -1;
	a->address = (uintptr_t)s.p;
	a->length = LEN;
}

static void make_release(void *arg)
{
	struct strait_ioc_release *a = arg;

	a->handle = ko_import(s.e.ko, STRAIT_IMPORT_USER, s.p, LEN);
}

/* Memory of a peer client: the only kind that is exported. */
static void make_import_peer(void *arg)
{
	static struct gpu_mem m;
	struct strait_ioc_import *a = arg;

	raw_need_kind(s.e.ko, STRAIT_IMPORT_PEER);
	if (!m.p)
		m = gpu_alloc(gpu_open(), PLAIN, LEN);
	a->kind = STRAIT_IMPORT_PEER;
	a->fd = -1;
	a->address = (uintptr_t)m.p;
	a->length = LEN;
}

static void make_export(void *arg)
{
	struct strait_ioc_import import = { .size = sizeof(import) };
	struct strait_ioc_export *a = arg;

	if (!s.peer) {
		make_import_peer(&import);
		ASSERT_OK(ko_call(s.e.ko, STRAIT_IOC_IMPORT, &import));
		s.peer = import.handle;
	}
	a->handle = s.peer;
	a->fd_flags = O_CLOEXEC;
	a->length = LEN;
}

static void make_check(void *arg)
{
	struct strait_ioc_check *a = arg;

	a->handle = s.region;
	a->fd = s.file;
}

static void make_io(void *arg)
{
	struct strait_ioc_io *a = arg;

	a->handle = s.region;
	a->fd = s.file;
	a->length = 4096;
}

static void make_map(void *arg)
{
	struct strait_ioc_map *a = arg;

	a->flags = STRAIT_MAP_READ;
	a->region = s.region;
	a->length = LEN;
}

static void make_unmap(void *arg)
{
	struct strait_ioc_mapping *a = arg;
	struct strait_ioc_map map;

	ASSERT_OK(raw_map(s.e.ko, s.region, 0, LEN, &map));
	a->handle = map.handle;
}

static void make_mapped(void *arg)
{
	((struct strait_ioc_mapping *)arg)->handle = s.map;
}

static void make_runs(void *arg)
{
	struct strait_ioc_runs *a = arg;

	a->handle = s.map;
	a->count = 4;
	a->runs = (uintptr_t)s.runs;
}

static void make_irq(void *arg)
{
	((struct strait_ioc_irq *)arg)->fd = -1;
}

static void make_config(void *arg)
{
	((struct strait_ioc_config *)arg)->width = 4;
}

static void make_control(void *arg)
{
	((struct strait_ioc_control *)arg)->value = 1;
}

static void make_nothing(void *arg)
{
}

/* @rc: of a valid call. */
static const struct call {
	const char *name;
	unsigned long cmd;
	uint32_t min, size;
	void (*make)(void *arg);
	int rc;
	bool answers;
} calls[] = {
#define CALL(name, cmd, type) #name, STRAIT_IOC_##cmd, STRAIT_##cmd##_SIZE_MIN, sizeof(struct strait_ioc_##type)
	{ CALL(info, INFO, info), make_nothing, 0, true },
	{ CALL(import, IMPORT, import), make_import, 0, true },
	{ CALL(import_peer, IMPORT, import), make_import_peer, 0, true },
	{ CALL(export, EXPORT, export), make_export, 0, true },
	{ CALL(release, RELEASE, release), make_release, 0, false },
	{ CALL(check, CHECK, check), make_check, 0, true },
	{ CALL(io, IO, io), make_io, -EOPNOTSUPP, false },
	{ CALL(attach, ATTACH, attach), make_nothing, -EBUSY, false },
	{ CALL(map, MAP, map), make_map, 0, true },
	{ CALL(unmap, UNMAP, mapping), make_unmap, 0, false },
	{ CALL(mapped, MAPPED, mapping), make_mapped, 0, false },
	{ CALL(runs, RUNS, runs), make_runs, 0, true },
	{ CALL(irq, IRQ, irq), make_irq, 0, false },
	{ CALL(config, CONFIG, config), make_config, 0, true },
	{ CALL(control, CONTROL, control), make_control, 0, false },
};

/* Of the table. */
enum { INFO_CALL = 0, MAP_CALL = 8 };

/* A struct of @size bytes followed by bytes that no call may access. @ioc: the size in the ioctl number. */
static int call_sized(const struct call *c, uint32_t size, uint32_t ioc, unsigned char arg[512])
{
	unsigned long cmd = (c->cmd & ~((unsigned long)_IOC_SIZEMASK << _IOC_SIZESHIFT)) | (unsigned long)ioc
												   << _IOC_SIZESHIFT;

	memset(arg, 0, 512);
	c->make(arg);
	memcpy(arg, &size, sizeof(size));
	if (size >= sizeof(size) && size < 512)
		memset(arg + size, GUARD, 512 - size);
	return ko_call(s.e.ko, cmd, arg);
}

static void set_up(void)
{
	struct strait_ioc_map map;

	s.e = raw_open();
	s.p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s.region = ko_import(s.e.ko, STRAIT_IMPORT_USER, s.p, LEN);
	ASSERT_OK(raw_map(s.e.ko, s.region, 0, LEN, &map));
	s.map = map.handle;
	/* A file that is refused, with a reason. */
	s.file = open("/tmp/args", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ASSERT_GE(s.file, 0);
}

TEST_VARIANTS(sizes, struct call, calls)
{
	unsigned char arg[512];
	uint32_t size;

	ASSERT_LE(v->min, v->size);
	set_up();
	/* Programs of all older sizes; the ioctl number carries the size in their header. */
	for (uint32_t n = v->min; n <= v->size; n += 4) {
		ASSERT_EQ(call_sized(v, n, n, arg), v->rc);
		for (unsigned int i = n; i < sizeof(arg); i++)
			ASSERT_EQ(arg[i], GUARD);
		memcpy(&size, arg, sizeof(size));
		ASSERT_EQ(size, n);
	}
	ASSERT_EQ(call_sized(v, v->min - 4, v->size, arg), -EINVAL);
	ASSERT_EQ(call_sized(v, 0, v->size, arg), -EINVAL);
	/* A newer program that uses nothing new. */
	memset(arg, 0, sizeof(arg));
	v->make(arg);
	size = v->size + 24;
	memcpy(arg, &size, sizeof(size));
	ASSERT_EQ(ko_call(s.e.ko, v->cmd, arg), v->rc);
	memcpy(&size, arg, sizeof(size));
	ASSERT_EQ(size, v->answers ? v->size : v->size + 24);
	/* One that does. */
	memset(arg, 0, sizeof(arg));
	v->make(arg);
	size = v->size + 24;
	memcpy(arg, &size, sizeof(size));
	arg[v->size + 20] = 1;
	ASSERT_EQ(ko_call(s.e.ko, v->cmd, arg), -E2BIG);
	ASSERT_EQ(call_sized(v, 4097, v->size, arg), -E2BIG);
	raw_close(&s.e);
}

/* A program need not know members that were added later, and gets those it knows. */
TEST(old_fields_are_filled_in)
{
	union {
		struct strait_ioc_info info;
		struct strait_ioc_map map;
		unsigned char bytes[512];
	} arg;

	set_up();
	ASSERT_STREQ(calls[MAP_CALL].name, "map");
	ASSERT_EQ(call_sized(&calls[INFO_CALL], STRAIT_INFO_SIZE_MIN, STRAIT_INFO_SIZE_MIN, arg.bytes), 0);
	ASSERT_EQ(arg.info.abi, STRAIT_ABI);
	ASSERT_TRUE(STRAIT_ABI_FITS(&arg.info));
	ASSERT_TRUE(arg.info.features & STRAIT_FEATURE_ATTACH);
	ASSERT_EQ(call_sized(&calls[MAP_CALL], STRAIT_MAP_SIZE_MIN, STRAIT_MAP_SIZE_MIN, arg.bytes), 0);
	ASSERT_EQ(arg.map.contiguous, LEN);
	ASSERT_EQ(call_sized(&calls[MAP_CALL], sizeof(arg.map), sizeof(arg.map), arg.bytes), 0);
	ASSERT_EQ(arg.map.access, STRAIT_MAP_READ);
	ASSERT_EQ(arg.map.where, STRAIT_WHERE_HOST);
	raw_close(&s.e);
}

/* Other ABI numbers: a module that has removed something, and a program that needs something the module lacks. */
TEST(abi_numbers)
{
	struct strait_ioc_info info = { .abi = STRAIT_ABI + 1, .abi_min = STRAIT_ABI };

	ASSERT_TRUE(STRAIT_ABI_FITS(&info));
	info.abi_min = STRAIT_ABI + 1;
	ASSERT_FALSE(STRAIT_ABI_FITS(&info));
	info = (struct strait_ioc_info){ .abi = STRAIT_ABI_MIN - 1 };
	ASSERT_FALSE(STRAIT_ABI_FITS(&info));
}
