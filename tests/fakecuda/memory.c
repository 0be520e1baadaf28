/* SPDX-License-Identifier: MIT */
/* Memory that the driver knows, and copies of its bytes. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fakecuda/internal.h"
#include "uapi/strait_vgpu.h"

struct list memories = LIST_INIT(memories);

static uint64_t last_id;

struct memory *memory_at(cu_ptr addr, size_t len)
{
	list_for_each(it, &memories) {
		struct memory *m = list_entry(it, struct memory, node);

		if (addr < m->addr || addr - m->addr >= m->len)
			continue;
		if (len <= m->len - (addr - m->addr))
			return m;
		/* Adjacent mappings act as one. */
		len -= m->len - (addr - m->addr);
		return m->kind == MAPPED && memory_at(m->addr + m->len, len) ? m : NULL;
	}
	return NULL;
}

struct memory *memory_at_cpu(const void *ptr, size_t len)
{
	list_for_each(it, &memories) {
		struct memory *m = list_entry(it, struct memory, node);
		uint64_t at = (uint64_t)(uintptr_t)ptr, start = (uint64_t)(uintptr_t)m->cpu;

		if (m->kind >= MANAGED && at >= start && range_inside(at - start, len, m->len))
			return m;
	}
	return NULL;
}

static bool is_host(const struct memory *m)
{
	return m->kind == PINNED || m->kind == REGISTERED;
}

static bool get(cu_context ctx, cu_ptr addr, size_t len, bool write, bool copy, struct span *ret)
{
	struct memory *m;
	bool ok = true;

	pthread_mutex_lock(&fake_lock);
	m = memory_at(addr, len);
	if (!m) {
		violation("the GPU uses %#llx, %zu bytes, which is no memory of its", (unsigned long long)addr, len);
		ok = false;
	} else if (!is_host(m) && m->device != ctx->device) {
		violation("a GPU uses the memory of another");
		ok = false;
	} else if (m->ctx && m->ctx != ctx && !(is_host(m) ? m->flags & CU_HOST_PORTABLE : copy)) {
		violation("memory of one context is used in another");
		ok = false;
	} else if (m->kind == REGISTERED && write && m->flags & CU_HOST_READ_ONLY) {
		violation("the GPU writes to memory that was registered for reading");
		ok = false;
	}
	if (ok) {
		m->busy++;
		ret->m = m;
		ret->p = m->cpu + (addr - m->addr);
	}
	pthread_mutex_unlock(&fake_lock);
	return ok;
}

bool span_get(cu_context ctx, cu_ptr addr, size_t len, bool write, struct span *ret)
{
	return get(ctx, addr, len, write, false, ret);
}

/* Copies reach the memory of another context of the same device, too. */
bool span_get_copy(cu_context ctx, cu_ptr addr, size_t len, bool write, struct span *ret)
{
	return get(ctx, addr, len, write, true, ret);
}

void span_put(struct span *s)
{
	pthread_mutex_lock(&fake_lock);
	s->m->busy--;
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
}

/* In the lab memory can be that of its GPU, whose driver peers of a GPU talk to. */
static bool on_vgpu(void)
{
	return getenv("FAKECUDA_VGPU") != NULL;
}

void copy_bytes(char *dst, const char *src, size_t len)
{
	if (on_vgpu()) {
		memcpy(dst, src, len);
		return;
	}
	while (len) {
		struct iovec to = { dst, len }, from = { (void *)src, len };
		ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);

		if (n < 0 && (errno == EPERM || errno == ENOSYS)) {
			memcpy(dst, src, len);
			return;
		}
		if (n <= 0) {
			/* The real driver has pinned the pages; their contents are undefined. */
			memset(dst, 0, len);
			return;
		}
		dst += n;
		src += n;
		len -= (size_t)n;
	}
}

/* The lock is held. */
static struct memory *memory_new(enum kind kind, int device, cu_context ctx, cu_ptr addr, size_t len, void *cpu)
{
	struct memory *m = calloc(1, sizeof(*m));

	m->kind = kind;
	m->device = device;
	m->ctx = ctx;
	m->addr = addr;
	m->len = len;
	m->cpu = cpu;
	m->fd = -1;
	m->id = ++last_id;
	list_add_tail(&memories, &m->node);
	if (kind == REGISTERED) {
		usage.registrations++;
		usage.registered_bytes += len;
	} else {
		usage.allocations++;
		usage.device_bytes += is_host(m) ? 0 : len;
	}
	return m;
}

/* The lock is held. */
static void memory_free(struct memory *m)
{
	while (m->busy)
		pthread_cond_wait(&fake_changed, &fake_lock);
	list_del(&m->node);
	if (m->kind == REGISTERED) {
		usage.registrations--;
		usage.registered_bytes -= m->len;
	} else {
		usage.allocations--;
		usage.device_bytes -= is_host(m) ? 0 : m->len;
	}
	if (m->kind == DEVICE || m->kind == POOLED || m->kind == MANAGED)
		devices[m->device].used -= m->len;
	if (m->kind != REGISTERED) {
		munmap(m->cpu, m->len);
		if (m->cpu != (char *)(uintptr_t)m->addr)
			munmap((void *)(uintptr_t)m->addr, m->len);
	}
	if (m->fd >= 0)
		close(m->fd);
	free(m);
}

/*
 * Registrations that ended with their context. Their owner cannot know yet and may unregister each of them once, which
 * the driver refuses. Unregistering a range that was never registered is a violation.
 */
static struct list ended = LIST_INIT(ended);

struct ended {
	struct list node;
	const char *cpu;
};

static bool take_ended(const char *cpu)
{
	list_for_each(it, &ended) {
		struct ended *e = list_entry(it, struct ended, node);

		if (e->cpu == cpu) {
			list_del(&e->node);
			free(e);
			return true;
		}
	}
	return false;
}

/* The lock is held. */
void memory_context_gone(cu_context ctx)
{
	list_for_each_safe(it, tmp, &memories) {
		struct memory *m = list_entry(it, struct memory, node);
		struct ended *e;

		if (m->ctx != ctx)
			continue;
		if (m->kind == REGISTERED) {
			e = calloc(1, sizeof(*e));
			e->cpu = m->cpu;
			list_add_tail(&ended, &e->node);
		}
		memory_free(m);
	}
}

/* Memory of the lab's GPU, at an address that its driver knows. The descriptor, or -1. */
static int vgpu_new(size_t len, void **at)
{
	struct strait_vgpu_alloc a = { .size = sizeof(a), .kind = STRAIT_VGPU_MEM_PLAIN, .length = len };
	int fd = open("/dev/strait_vgpu0", O_RDWR | O_CLOEXEC);
	char *room = mmap(NULL, len + KIB(64), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (fd < 0 || room == MAP_FAILED || ioctl(fd, STRAIT_VGPU_ALLOC, &a))
		return -1;
	room += align_up((uintptr_t)room, KIB(64)) - (uintptr_t)room;
	*at = mmap(room, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)a.mmap_offset);
	return fd;
}

static int memfd_new(size_t len, bool managed, void **cpu, void **gpu)
{
	int fd = memfd_create("fake-gpu", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)len))
		return -1;
	*cpu = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	/* The CPU can map the GPU's address as well, but must not access it. */
	*gpu = managed ? *cpu : mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, 0);
	return fd;
}

static cu_result device_new(enum kind kind, cu_context ctx, size_t len, cu_ptr *ptr)
{
	size_t mapped = (size_t)align_up(len, KIB(64));
	void *cpu = MAP_FAILED, *gpu = MAP_FAILED;
	struct memory *m;
	int fd;

	if (!len)
		return CU_INVALID_VALUE;
	if (mapped > fake_machine.memory - devices[ctx->device].used)
		return CU_OUT_OF_MEMORY;
	fd = on_vgpu() ? vgpu_new(mapped, &cpu) : memfd_new(mapped, kind == MANAGED, &cpu, &gpu);
	if (on_vgpu())
		gpu = cpu;
	if (fd < 0 || cpu == MAP_FAILED || gpu == MAP_FAILED)
		return CU_OPERATING_SYSTEM;
	memset(cpu, 0xdb, mapped);
	devices[ctx->device].used += mapped;
	m = memory_new(kind, ctx->device, kind == POOLED ? NULL : ctx, (cu_ptr)(uintptr_t)gpu, mapped, cpu);
	m->fd = fd;
	*ptr = m->addr;
	return CU_OK;
}

static cu_result alloc(enum kind kind, size_t len, cu_ptr *ptr)
{
	cu_context ctx;
	cu_result r;

	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	if (!r)
		r = device_new(kind, ctx, len, ptr);
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuMemAlloc_v2(cu_ptr *ptr, size_t len)
{
	MAY_FAIL();
	return alloc(DEVICE, len, ptr);
}

cu_result cuMemAllocManaged(cu_ptr *ptr, size_t len, unsigned int flags)
{
	(void)flags;
	return alloc(MANAGED, len, ptr);
}

cu_result cuMemAllocAsync(cu_ptr *ptr, size_t len, cu_stream s)
{
	(void)s;
	return alloc(POOLED, len, ptr);
}

cu_result cuMemFreeAsync(cu_ptr ptr, cu_stream s)
{
	cuStreamSynchronize(s);
	return cuMemFree_v2(ptr);
}

cu_result cuMemFree_v2(cu_ptr ptr)
{
	cu_result r = inject(__func__), current_is;
	struct memory *m;
	cu_context ctx;

	/* While it waits for streams it admits no other call, as the real driver. */
	pthread_mutex_lock(&fake_loading);
	pthread_mutex_lock(&fake_lock);
	current_is = current(&ctx);
	m = memory_at(ptr, 1);
	if (!m || m->addr != ptr || is_host(m) || m->kind == MAPPED) {
		r = CU_INVALID_VALUE;
	} else {
		if (m->ctx && m->ctx != ctx)
			violation("memory of one context is freed in another");
		if (fake_machine.unregister_waits)
			streams_wait(NULL, m->device);
		memory_free(m);
	}
	pthread_mutex_unlock(&fake_loading);
	pthread_mutex_unlock(&fake_lock);
	return r ? r : current_is;
}

/* What another process needs to map the same bytes, while this one lives. */
struct shared_memory {
	pid_t pid;
	int fd;
	size_t len;
};

cu_result cuIpcGetMemHandle(struct cu_ipc_handle *handle, cu_ptr ptr)
{
	struct shared_memory s = { .pid = getpid() };
	cu_result r = CU_INVALID_VALUE;
	struct memory *m;

	memset(handle, 0, sizeof(*handle));
	pthread_mutex_lock(&fake_lock);
	m = memory_at(ptr, 1);
	if (m && m->kind == DEVICE && !on_vgpu()) {
		s.fd = m->fd;
		s.len = m->len;
		memcpy(handle->data, &s, sizeof(s));
		r = CU_OK;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuIpcOpenMemHandle_v2(cu_ptr *ptr, struct cu_ipc_handle handle, unsigned int flags)
{
	void *cpu = MAP_FAILED, *gpu = MAP_FAILED;
	struct shared_memory s;
	struct memory *m;
	cu_context ctx;
	char path[64];
	cu_result r;
	int fd;

	(void)flags;
	memcpy(&s, handle.data, sizeof(s));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)s.pid, s.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		cpu = mmap(NULL, s.len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		gpu = mmap(NULL, s.len, PROT_NONE, MAP_SHARED, fd, 0);
	}
	if (cpu == MAP_FAILED || gpu == MAP_FAILED)
		return CU_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	if (!r) {
		devices[ctx->device].used += s.len;
		m = memory_new(DEVICE, ctx->device, ctx, (cu_ptr)(uintptr_t)gpu, s.len, cpu);
		m->fd = fd;
		*ptr = m->addr;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuIpcCloseMemHandle(cu_ptr ptr)
{
	return cuMemFree_v2(ptr);
}

cu_result cuMemHostAlloc(void **ptr, size_t len, unsigned int flags)
{
	size_t mapped = (size_t)align_up(len, KIB(4));
	struct memory *m;
	cu_context ctx;
	cu_result r;
	void *p;

	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	if (!r) {
		p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		m = memory_new(PINNED, ctx->device, ctx, (cu_ptr)(uintptr_t)p, mapped, p);
		m->flags = flags;
		*ptr = p;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuMemFreeHost(void *ptr)
{
	struct memory *m;

	pthread_mutex_lock(&fake_lock);
	m = memory_at_cpu(ptr, 1);
	if (m && m->kind == PINNED)
		memory_free(m);
	pthread_mutex_unlock(&fake_lock);
	return m ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	if (!r) {
		*total = fake_machine.memory;
		*free_bytes = fake_machine.memory - devices[ctx->device].used;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

/* Does the GPU's address of [ptr, ptr + len) overlap something? Registrations must not overlap either. */
static bool overlaps(const char *ptr, size_t len)
{
	list_for_each(it, &memories) {
		struct memory *m = list_entry(it, struct memory, node);

		if (is_host(m) && ptr < m->cpu + m->len && m->cpu < ptr + len)
			return true;
	}
	return false;
}

/*
 * Pinning writable pages writes to them, or faults as a write would. Of many pages the first and the last are checked,
 * if all of them are mapped.
 */
static bool can_pin(char *ptr, size_t len, bool read_only)
{
	size_t part = min_u64(len, MIB(1));

	if (read_only)
		return !madvise(ptr, len, MADV_POPULATE_READ);
	return !msync(ptr, len, MS_ASYNC) && !madvise(ptr, part, MADV_POPULATE_WRITE) &&
	       !madvise(ptr + len - part, part, MADV_POPULATE_WRITE);
}

cu_result cuMemHostRegister_v2(void *ptr, size_t len, unsigned int flags)
{
	struct memory *m;
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	if (!r && (!ptr || !len || (uintptr_t)ptr % KIB(4) || len % KIB(4) ||
		   (flags & CU_HOST_READ_ONLY && fake_machine.no_read_only)))
		r = CU_INVALID_VALUE;
	if (!r && overlaps(ptr, len))
		r = CU_ALREADY_REGISTERED;
	if (!r && !(flags & CU_HOST_IOMEMORY) && !can_pin(ptr, len, flags & CU_HOST_READ_ONLY))
		r = CU_INVALID_VALUE;
	if (!r) {
		m = memory_new(REGISTERED, ctx->device, ctx, (cu_ptr)(uintptr_t)ptr + HOST_SHIFT, len, ptr);
		m->flags = flags;
		m->by = pthread_self();
		take_ended(ptr);
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

static unsigned int strangers;

cu_result cuMemHostUnregister(void *ptr)
{
	cu_result r = inject(__func__);
	struct memory *m;
	cu_context ctx;

	pthread_mutex_lock(&fake_lock);
	if (!r)
		r = current(&ctx);
	m = memory_at_cpu(ptr, 1);
	if (!m || m->kind != REGISTERED || m->cpu != ptr) {
		if (!take_ended(ptr))
			violation("%p is unregistered, which is not registered", ptr);
		r = CU_NOT_REGISTERED;
	} else {
		if (fake_machine.unregister_waits)
			streams_wait(ctx, m->device);
		__atomic_fetch_add(&strangers, !pthread_equal(m->by, pthread_self()), __ATOMIC_RELAXED);
		memory_free(m);
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuMemHostGetDevicePointer_v2(cu_ptr *dev, void *ptr, unsigned int flags)
{
	struct memory *m;
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	m = memory_at_cpu(ptr, 1);
	if (!r && (!m || flags || !(m->flags & CU_HOST_DEVICEMAP)))
		r = CU_INVALID_VALUE;
	if (!r)
		*dev = m->addr + (cu_ptr)((char *)ptr - m->cpu);
	pthread_mutex_unlock(&fake_lock);
	return r;
}

int fake_registered(const void *ptr)
{
	struct memory *m;
	int flags;

	pthread_mutex_lock(&fake_lock);
	m = memory_at_cpu(ptr, 1);
	flags = m && m->kind == REGISTERED ? (int)m->flags : -1;
	pthread_mutex_unlock(&fake_lock);
	return flags;
}

unsigned int fake_strangers(void)
{
	return __atomic_load_n(&strangers, __ATOMIC_RELAXED);
}

void *fake_memory(cu_ptr ptr)
{
	struct memory *m;
	char *p;

	pthread_mutex_lock(&fake_lock);
	m = memory_at(ptr, 1);
	p = m ? m->cpu + (ptr - m->addr) : NULL;
	pthread_mutex_unlock(&fake_lock);
	return p;
}

struct fake_usage fake_usage(void)
{
	struct fake_usage u;

	pthread_mutex_lock(&fake_lock);
	u = usage;
	pthread_mutex_unlock(&fake_lock);
	return u;
}
