/* SPDX-License-Identifier: MIT */
/* What the driver reports about a pointer, and memory mapped by cuMemMap. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fakecuda/internal.h"

struct list physicals = LIST_INIT(physicals);

/* Address ranges to map memory in. */
static struct {
	cu_ptr addr;
	size_t len;
	char *cpu; /* as much space for the bytes themselves */
} reserved[64];

static bool is_host(const struct memory *m)
{
	return m->kind == PINNED || m->kind == REGISTERED;
}

/* With the lock held. By either address of it. */
static struct memory *find(cu_ptr ptr)
{
	struct memory *m = memory_at(ptr, 1);

	return m ? m : memory_at_cpu((void *)(uintptr_t)ptr, 1);
}

static cu_result get(struct memory *m, int attribute, cu_ptr ptr, void *value)
{
	uint64_t off = ptr - m->addr < m->len ? ptr - m->addr : ptr - (cu_ptr)(uintptr_t)m->cpu;

	switch (attribute) {
	case CU_PTR_CONTEXT:
		*(cu_context *)value = m->ctx;
		return CU_OK;
	case CU_PTR_MEMORY_TYPE:
		*(unsigned int *)value = is_host(m) ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
		return CU_OK;
	case CU_PTR_DEVICE_POINTER:
		*(cu_ptr *)value = m->addr + off;
		return CU_OK;
	case CU_PTR_HOST_POINTER:
		if (m->kind < MANAGED)
			return CU_INVALID_VALUE;
		*(void **)value = m->cpu + off;
		return CU_OK;
	case CU_PTR_BUFFER_ID:
		if (m->kind == REGISTERED)
			return CU_INVALID_VALUE;
		*(unsigned long long *)value = m->id;
		return CU_OK;
	case CU_PTR_IS_MANAGED:
		*(unsigned char *)value = m->kind == MANAGED;
		return CU_OK;
	case CU_PTR_DEVICE_ORDINAL:
		*(int *)value = m->device;
		return CU_OK;
	case CU_PTR_RANGE_START:
		*(cu_ptr *)value = m->kind == MAPPED ? m->reserved : m->addr;
		return CU_OK;
	case CU_PTR_RANGE_SIZE:
		*(size_t *)value = m->kind == MAPPED ? m->reserved_len : m->len;
		return CU_OK;
	case CU_PTR_MAPPED:
		*(bool *)value = true;
		return CU_OK;
	case CU_PTR_MAPPING_BASE:
		if (m->kind != MAPPED || fake_machine.no_mapping_attributes)
			return CU_INVALID_VALUE;
		*(cu_ptr *)value = m->addr;
		return CU_OK;
	case CU_PTR_MAPPING_SIZE:
		if (m->kind != MAPPED || fake_machine.no_mapping_attributes)
			return CU_INVALID_VALUE;
		*(size_t *)value = m->len;
		return CU_OK;
	default:
		return CU_INVALID_VALUE;
	}
}

/* What is known of an address range that has no mapping. */
static void get_reserved(int attribute, cu_ptr ptr, void *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		if (ptr < reserved[i].addr || ptr - reserved[i].addr >= reserved[i].len)
			continue;
		if (attribute == CU_PTR_MEMORY_TYPE)
			*(unsigned int *)value = CU_MEMORY_DEVICE;
		else if (attribute == CU_PTR_DEVICE_ORDINAL)
			*(int *)value = 0;
		else if (attribute == CU_PTR_RANGE_START)
			*(cu_ptr *)value = reserved[i].addr;
		else if (attribute == CU_PTR_RANGE_SIZE)
			*(size_t *)value = reserved[i].len;
	}
}

cu_result cuPointerGetAttribute(void *value, int attribute, cu_ptr ptr)
{
	struct memory *m;
	cu_result r;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	m = find(ptr);
	r = m ? get(m, attribute, ptr, value) : CU_INVALID_VALUE;
	pthread_mutex_unlock(&fake_lock);
	return r;
}

/* With the lock held. */
static bool any_context(void)
{
	list_for_each(it, &contexts)
		if (list_entry(it, struct cu_context_st, node)->alive)
			return true;
	for (int i = 0; i < MAX_DEVICES; i++)
		if (devices[i].primary.alive)
			return true;
	return false;
}

/* Attributes that do not apply stay zero. */
cu_result cuPointerGetAttributes(unsigned int n, int *attributes, void **values, cu_ptr ptr)
{
	struct memory *m;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	m = find(ptr);
	if (!m && !any_context()) {
		pthread_mutex_unlock(&fake_lock);
		return CU_INVALID_CONTEXT;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (attributes[i] == CU_PTR_DEVICE_ORDINAL)
			*(int *)values[i] = -2;
		if (m)
			get(m, attributes[i], ptr, values[i]);
		else
			get_reserved(attributes[i], ptr, values[i]);
	}
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

cu_result cuPointerSetAttribute(const void *value, int attribute, cu_ptr ptr)
{
	cu_result r = CU_OK;
	struct memory *m;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	m = find(ptr);
	if (!m || attribute != CU_PTR_SYNC_MEMOPS || m->kind != DEVICE)
		r = CU_INVALID_VALUE;
	else
		m->sync_memops = *(const unsigned int *)value;
	pthread_mutex_unlock(&fake_lock);
	return r;
}

int fake_sync_memops(cu_ptr ptr)
{
	struct memory *m;
	int value;

	pthread_mutex_lock(&fake_lock);
	m = find(ptr);
	value = m ? (int)m->sync_memops : -1;
	pthread_mutex_unlock(&fake_lock);
	return value;
}

cu_result cuMemGetHandleForAddressRange(void *handle, cu_ptr ptr, size_t len, int type, unsigned long long flags)
{
	cu_result r = CU_OK;
	struct memory *m;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	m = memory_at(ptr, len);
	if (fake_machine.no_dmabuf)
		r = CU_NOT_SUPPORTED;
	else if (!m || m->kind != DEVICE || ptr % KIB(4) || len % KIB(4) || type != CU_RANGE_DMABUF || flags)
		r = CU_INVALID_VALUE;
	else
		*(int *)handle = fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&fake_lock);
	return r;
}

/* ---- memory mapped by hand ---- */

cu_result cuMemAddressReserve(cu_ptr *ptr, size_t len, size_t align, cu_ptr hint, unsigned long long flags)
{
	/* Space for alignment. */
	char *p = mmap(NULL, len + MIB(2), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)align;
	(void)hint;
	(void)flags;
	*ptr = align_up((cu_ptr)(uintptr_t)p, MIB(2));
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		if (!reserved[i].len) {
			reserved[i].addr = *ptr;
			reserved[i].len = len;
			reserved[i].cpu = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			return CU_OK;
		}
	}
	return CU_OUT_OF_MEMORY;
}

cu_result cuMemAddressFree(cu_ptr ptr, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		if (reserved[i].addr == ptr) {
			munmap(reserved[i].cpu, len);
			reserved[i].addr = reserved[i].len = 0;
		}
	}
	munmap((void *)(uintptr_t)ptr, len);
	return CU_OK;
}

/* With the lock held. */
static struct physical *physical_of(cu_mem_handle handle)
{
	list_for_each(it, &physicals)
		if ((cu_mem_handle)(uintptr_t)it == handle)
			return list_entry(it, struct physical, node);
	return NULL;
}

static void physical_put(struct physical *p)
{
	if (--p->refs)
		return;
	list_del(&p->node);
	close(p->fd);
	devices[p->device].used -= p->len;
	free(p);
}

cu_result cuMemCreate(cu_mem_handle *handle, size_t len, const struct cu_mem_prop *prop, unsigned long long flags)
{
	struct physical *p;

	(void)flags;
	if (!len || len % MIB(2) || prop->type != 1 || prop->location.type != 1)
		return CU_INVALID_VALUE;
	p = calloc(1, sizeof(*p));
	p->device = prop->location.id;
	p->len = len;
	p->refs = 1;
	p->fd = memfd_create("fake-gpu", MFD_CLOEXEC);
	if (p->fd < 0 || ftruncate(p->fd, (off_t)len)) {
		free(p);
		return CU_OPERATING_SYSTEM;
	}
	pthread_mutex_lock(&fake_lock);
	list_add_tail(&physicals, &p->node);
	devices[p->device].used += len;
	usage.handles++;
	pthread_mutex_unlock(&fake_lock);
	*handle = (cu_mem_handle)(uintptr_t)&p->node;
	return CU_OK;
}

cu_result cuMemRelease(cu_mem_handle handle)
{
	cu_result r = inject(__func__);
	struct physical *p;

	pthread_mutex_lock(&fake_lock);
	p = physical_of(handle);
	if (p) {
		usage.handles--;
		physical_put(p);
	} else {
		violation("memory is released that was not created");
		r = CU_INVALID_VALUE;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuMemRetainAllocationHandle(cu_mem_handle *handle, void *ptr)
{
	cu_result r = CU_INVALID_VALUE;
	struct memory *m;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	m = memory_at((cu_ptr)(uintptr_t)ptr, 1);
	if (m && m->kind == MAPPED) {
		m->phys->refs++;
		usage.handles++;
		*handle = (cu_mem_handle)(uintptr_t)&m->phys->node;
		r = CU_OK;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuMemMap(cu_ptr ptr, size_t len, size_t off, cu_mem_handle handle, unsigned long long flags)
{
	static uint64_t last_id = 1ull << 32;
	cu_result r = CU_INVALID_VALUE;
	struct physical *p;
	struct memory *m;

	pthread_mutex_lock(&fake_lock);
	p = physical_of(handle);
	for (size_t i = 0; i < ARRAY_SIZE(reserved) && p && !off && !flags && len == p->len; i++) {
		if (ptr < reserved[i].addr || !range_inside(ptr - reserved[i].addr, len, reserved[i].len))
			continue;
		m = calloc(1, sizeof(*m));
		m->kind = MAPPED;
		m->device = p->device;
		m->addr = ptr;
		m->len = len;
		m->cpu = reserved[i].cpu + (ptr - reserved[i].addr);
		m->fd = -1;
		m->id = ++last_id;
		m->phys = p;
		m->reserved = reserved[i].addr;
		m->reserved_len = reserved[i].len;
		mmap(m->cpu, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p->fd, 0);
		p->refs++;
		list_add_tail(&memories, &m->node);
		r = CU_OK;
		break;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuMemSetAccess(cu_ptr ptr, size_t len, const struct cu_mem_access *access, size_t n)
{
	(void)ptr;
	(void)len;
	return n == 1 && access->flags == 3 ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemUnmap(cu_ptr ptr, size_t len)
{
	struct memory *m;

	pthread_mutex_lock(&fake_lock);
	while ((m = memory_at(ptr, 1)) && m->kind == MAPPED && len) {
		ptr += m->len;
		len -= m->len;
		list_del(&m->node);
		mmap(m->cpu, m->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		physical_put(m->phys);
		free(m);
	}
	pthread_mutex_unlock(&fake_lock);
	return len ? CU_INVALID_VALUE : CU_OK;
}
