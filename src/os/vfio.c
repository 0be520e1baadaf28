/* SPDX-License-Identifier: MIT */
#include "os/vfio.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/util.h"
#include "os/os.h"

/* From linux/vfio.h; missing in headers before 6.6. */
struct bind_iommufd {
	uint32_t argsz, flags;
	int32_t iommufd;
	uint32_t out_devid;
};

struct attach_pt {
	uint32_t argsz, flags, pt_id;
};

#define BIND_IOMMUFD _IO(VFIO_TYPE, VFIO_BASE + 18)
#define ATTACH_PT _IO(VFIO_TYPE, VFIO_BASE + 19)

/* From linux/iommufd.h. */
#define IOAS_ALLOC _IO(';', 0x81)
#define IOAS_RANGES _IO(';', 0x84)
#define IOAS_MAP _IO(';', 0x85)
#define IOAS_UNMAP _IO(';', 0x86)
#define IOAS_MAP_FIXED 1u
#define IOAS_MAP_WRITE 2u
#define IOAS_MAP_READ 4u

struct ioas_alloc {
	uint32_t size, flags, out_id;
};

struct ioas_ranges {
	uint32_t size, id, n, reserved;
	uint64_t ranges, alignment;
};

struct ioas_map {
	uint32_t size, flags, id, reserved;
	uint64_t addr, length, iova;
};

struct ioas_unmap {
	uint32_t size, id;
	uint64_t iova, length;
};

static void vfio_clear(struct os_vfio *v)
{
	*v = (struct os_vfio){ .device = -1, .group = -1, .container = -1, .iommufd = -1 };
}

void os_vfio_close(struct os_vfio *v)
{
	/* Close the device before its IOVA space. */
	const int fds[] = { v->device, v->group, v->container, v->iommufd };

	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			os_close(fds[i]);
	vfio_clear(v);
}

static int irq_count(const struct os_vfio *v, uint32_t index)
{
	struct vfio_irq_info info = { .argsz = sizeof(info), .index = index };
	int rc = os_ioctl(v->device, VFIO_DEVICE_GET_IRQ_INFO, &info);

	return rc || !(info.flags & VFIO_IRQ_INFO_EVENTFD) ? 0 : (int)info.count;
}

/* Read the properties of an open device. */
static int read_info(struct os_vfio *v)
{
	struct vfio_device_info info = { .argsz = sizeof(info) };
	int rc = os_ioctl(v->device, VFIO_DEVICE_GET_INFO, &info);

	if (rc)
		return rc;
	if (!(info.flags & VFIO_DEVICE_FLAGS_PCI))
		return -ENODEV;
	v->can_reset = info.flags & VFIO_DEVICE_FLAGS_RESET;
	v->irq_index = VFIO_PCI_MSIX_IRQ_INDEX;
	v->vectors = (uint32_t)irq_count(v, v->irq_index);
	if (!v->vectors) {
		v->irq_index = VFIO_PCI_MSI_IRQ_INDEX;
		v->vectors = (uint32_t)irq_count(v, v->irq_index);
	}
	return 0;
}

static int open_type1(const char *pci, unsigned int group, struct os_vfio *v)
{
	struct vfio_group_status status = { .argsz = sizeof(status) };
	char path[32];
	int rc;

	v->container = os_open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC, 0);
	if (v->container < 0)
		return v->container;
	if (os_ioctl(v->container, VFIO_GET_API_VERSION, NULL) != VFIO_API_VERSION ||
	    os_ioctl(v->container, VFIO_CHECK_EXTENSION, (void *)VFIO_TYPE1v2_IOMMU) <= 0)
		return -EPROTO;
	str_format(path, sizeof(path), "/dev/vfio/%u", group);
	v->group = os_open(path, O_RDWR | O_CLOEXEC, 0);
	if (v->group < 0)
		return v->group;
	rc = os_ioctl(v->group, VFIO_GROUP_GET_STATUS, &status);
	if (rc)
		return rc;
	if (!(status.flags & VFIO_GROUP_FLAGS_VIABLE))
		return -EPERM;
	rc = os_ioctl(v->group, VFIO_GROUP_SET_CONTAINER, &v->container);
	if (rc)
		return rc;
	rc = os_ioctl(v->container, VFIO_SET_IOMMU, (void *)VFIO_TYPE1v2_IOMMU);
	if (rc)
		return rc;
	v->device = os_ioctl(v->group, VFIO_GROUP_GET_DEVICE_FD, (void *)(uintptr_t)pci);
	return v->device < 0 ? v->device : read_info(v);
}

int os_vfio_open_group(const char *pci, unsigned int group, struct os_vfio *v)
{
	int rc;

	vfio_clear(v);
	rc = open_type1(pci, group, v);
	if (rc)
		os_vfio_close(v);
	return rc;
}

static int open_iommufd(const char *node, struct os_vfio *v)
{
	struct ioas_alloc alloc = { .size = sizeof(alloc) };
	struct bind_iommufd bind = { .argsz = sizeof(bind) };
	struct attach_pt attach = { .argsz = sizeof(attach) };
	char path[64];
	int rc;

	v->iommufd = os_open("/dev/iommu", O_RDWR | O_CLOEXEC, 0);
	if (v->iommufd < 0)
		return v->iommufd;
	str_format(path, sizeof(path), "/dev/vfio/devices/%s", node);
	v->device = os_open(path, O_RDWR | O_CLOEXEC, 0);
	if (v->device < 0)
		return v->device;
	bind.iommufd = v->iommufd;
	rc = os_ioctl(v->device, BIND_IOMMUFD, &bind);
	if (!rc)
		rc = os_ioctl(v->iommufd, IOAS_ALLOC, &alloc);
	if (rc)
		return rc;
	v->ioas = attach.pt_id = alloc.out_id;
	rc = os_ioctl(v->device, ATTACH_PT, &attach);
	return rc ? rc : read_info(v);
}

int os_vfio_open_device(const char *node, struct os_vfio *v)
{
	int rc;

	vfio_clear(v);
	rc = open_iommufd(node, v);
	if (rc)
		os_vfio_close(v);
	return rc;
}

static int region_info(const struct os_vfio *v, uint32_t index, struct vfio_region_info *info)
{
	*info = (struct vfio_region_info){ .argsz = sizeof(*info), .index = index };
	return os_ioctl(v->device, VFIO_DEVICE_GET_REGION_INFO, info);
}

/* The kernel lists the mappable parts only if some parts are not mappable. */
static int has_holes(const struct os_vfio *v, uint32_t index, uint32_t bytes)
{
	struct vfio_region_info *info = calloc(1, bytes);
	int rc;

	if (!info)
		return -ENOMEM;
	info->argsz = bytes;
	info->index = index;
	rc = os_ioctl(v->device, VFIO_DEVICE_GET_REGION_INFO, info);
	for (uint32_t at = rc ? 0 : info->cap_offset; at && at <= bytes - sizeof(struct vfio_info_cap_header);) {
		const struct vfio_info_cap_header *cap = (const void *)((const char *)info + at);

		if (cap->id == VFIO_REGION_INFO_CAP_SPARSE_MMAP)
			rc = 1;
		if (cap->next <= at)
			break;
		at = cap->next;
	}
	free(info);
	return rc;
}

int os_vfio_bar(const struct os_vfio *v, unsigned int bar, struct os_vfio_bar *ret)
{
	struct vfio_region_info info;
	int rc = region_info(v, bar, &info);

	if (rc)
		return rc;
	*ret = (struct os_vfio_bar){ .offset = info.offset };
	if ((info.flags & (VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE)) !=
	    (VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE))
		return 0;
	ret->length = info.size;
	ret->mappable = info.flags & VFIO_REGION_INFO_FLAG_MMAP;
	if (ret->mappable && info.flags & VFIO_REGION_INFO_FLAG_CAPS && info.argsz > sizeof(info)) {
		rc = has_holes(v, bar, info.argsz);
		if (rc < 0)
			return rc;
		ret->mappable = !rc;
	}
	return 0;
}

int os_vfio_config(const struct os_vfio *v, uint64_t *offset)
{
	struct vfio_region_info info;
	int rc = region_info(v, VFIO_PCI_CONFIG_REGION_INDEX, &info);

	if (!rc)
		*offset = info.offset;
	return rc;
}

int os_vfio_reset(const struct os_vfio *v)
{
	return v->can_reset ? os_ioctl(v->device, VFIO_DEVICE_RESET, NULL) : -EOPNOTSUPP;
}

int os_vfio_irqs(const struct os_vfio *v, const int *fds)
{
	size_t bytes = sizeof(struct vfio_irq_set) + v->vectors * sizeof(*fds);
	struct vfio_irq_set *set = calloc(1, bytes);
	int rc;

	if (!set)
		return -ENOMEM;
	set->argsz = (uint32_t)bytes;
	set->flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
	set->index = v->irq_index;
	set->count = v->vectors;
	memcpy(set->data, fds, v->vectors * sizeof(*fds));
	rc = os_ioctl(v->device, VFIO_DEVICE_SET_IRQS, set);
	free(set);
	return rc;
}

static int add_range(struct os_vfio_range *ranges, int n, uint64_t start, uint64_t last)
{
	if (n == OS_VFIO_RANGES || start >= last)
		return n;
	ranges[n] = (struct os_vfio_range){ start, last };
	return n + 1;
}

static int iommufd_ranges(const struct os_vfio *v, struct os_vfio_range *ranges)
{
	struct os_vfio_range found[OS_VFIO_RANGES];
	struct ioas_ranges req = {
		.size = sizeof(req), .id = v->ioas, .n = ARRAY_SIZE(found), .ranges = (uintptr_t)found
	};
	int rc = os_ioctl(v->iommufd, IOAS_RANGES, &req), n = 0;

	if (rc && rc != -EMSGSIZE)
		return rc;
	for (uint32_t i = 0; i < min_u64(req.n, ARRAY_SIZE(found)); i++)
		n = add_range(ranges, n, found[i].start, found[i].last);
	return n;
}

static int type1_ranges(const struct os_vfio *v, struct os_vfio_range *ranges)
{
	struct vfio_iommu_type1_info small = { .argsz = sizeof(small) }, *info;
	const struct vfio_iommu_type1_info_cap_iova_range *cap;
	int rc = os_ioctl(v->container, VFIO_IOMMU_GET_INFO, &small), n = 0;

	if (rc || small.argsz <= sizeof(small))
		return rc;
	info = calloc(1, small.argsz);
	if (!info)
		return -ENOMEM;
	info->argsz = small.argsz;
	rc = os_ioctl(v->container, VFIO_IOMMU_GET_INFO, info);
	for (uint32_t at = rc ? 0 : info->cap_offset; at && at <= small.argsz - sizeof(*cap);) {
		cap = (const void *)((const char *)info + at);
		if (cap->header.id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE)
			for (uint32_t i = 0; i < cap->nr_iovas &&
					     at + sizeof(*cap) + (i + 1) * sizeof(cap->iova_ranges[0]) <= small.argsz;
			     i++)
				n = add_range(ranges, n, cap->iova_ranges[i].start, cap->iova_ranges[i].end);
		if (cap->header.next <= at)
			break;
		at = cap->header.next;
	}
	free(info);
	return rc ? rc : n;
}

int os_vfio_ranges(const struct os_vfio *v, struct os_vfio_range *ranges)
{
	int n = v->iommufd >= 0 ? iommufd_ranges(v, ranges) : type1_ranges(v, ranges);

	/* The kernel does not report ranges: use IOVAs below the interrupt window, which every device supports. */
	return n ? n : add_range(ranges, 0, KIB(64), 0xfedfffff);
}

int os_vfio_map(const struct os_vfio *v, const void *addr, uint64_t bus, uint64_t len, bool read, bool write)
{
	struct vfio_iommu_type1_dma_map map = {
		.argsz = sizeof(map),
		.flags = (read ? VFIO_DMA_MAP_FLAG_READ : 0) | (write ? VFIO_DMA_MAP_FLAG_WRITE : 0),
		.vaddr = (uintptr_t)addr,
		.iova = bus,
		.size = len,
	};
	struct ioas_map ioas = {
		.size = sizeof(ioas),
		.flags = IOAS_MAP_FIXED | (read ? IOAS_MAP_READ : 0) | (write ? IOAS_MAP_WRITE : 0),
		.id = v->ioas,
		.addr = (uintptr_t)addr,
		.length = len,
		.iova = bus,
	};

	return v->iommufd >= 0 ? os_ioctl(v->iommufd, IOAS_MAP, &ioas) :
				 os_ioctl(v->container, VFIO_IOMMU_MAP_DMA, &map);
}

int os_vfio_unmap(const struct os_vfio *v, uint64_t bus, uint64_t len)
{
	struct vfio_iommu_type1_dma_unmap unmap = { .argsz = sizeof(unmap), .iova = bus, .size = len };
	struct ioas_unmap ioas = { .size = sizeof(ioas), .id = v->ioas, .iova = bus, .length = len };

	return v->iommufd >= 0 ? os_ioctl(v->iommufd, IOAS_UNMAP, &ioas) :
				 os_ioctl(v->container, VFIO_IOMMU_UNMAP_DMA, &unmap);
}
