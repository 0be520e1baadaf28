/* SPDX-License-Identifier: MIT */
#include "module/module.h"

#include <fcntl.h>

#include "os/os.h"
#include "os/ring.h"

#define NVP2P_PAGE KIB(64)

int module_open(void)
{
	return os_open("/dev/strait", O_RDWR, 0);
}

int module_info(int fd, struct strait_ioc_info *info)
{
	int rc;

	*info = (struct strait_ioc_info){ .size = sizeof(*info) };
	rc = os_ioctl(fd, STRAIT_IOC_INFO, info);
	if (rc) {
		*info = (struct strait_ioc_info){ .size = sizeof(*info) };
		return rc;
	}
	info->version[sizeof(info->version) - 1] = '\0';
	return STRAIT_ABI_FITS(info) ? 0 : -EPROTO;
}

void module_feature_names(uint64_t features, char *text, size_t len)
{
	static const struct {
		uint64_t bit;
		const char *name;
	} names[] = {
		{ STRAIT_FEATURE_P2PDMA, "p2pdma" },	  { STRAIT_FEATURE_IMPORT_P2P, "p2p" },
		{ STRAIT_FEATURE_IMPORT_USER, "user" },	  { STRAIT_FEATURE_IMPORT_DMABUF, "dmabuf" },
		{ STRAIT_FEATURE_IMPORT_NVP2P, "nvp2p" }, { STRAIT_FEATURE_URING, "uring" },
		{ STRAIT_FEATURE_ATTACH, "attach" },	  { STRAIT_FEATURE_IMPORT_PEER, "peer" },
	};
	size_t at = 0;

	text[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!(features & names[i].bit) || at >= len)
			continue;
		str_format(text + at, len - at, "%s%s", at ? " " : "", names[i].name);
		at += strlen(text + at);
	}
}

bool module_imports(uint64_t features, uint32_t kind)
{
	static const uint64_t need[] = {
		[STRAIT_IMPORT_P2P] = STRAIT_FEATURE_IMPORT_P2P,
		[STRAIT_IMPORT_USER] = STRAIT_FEATURE_IMPORT_USER,
		[STRAIT_IMPORT_DMABUF] = STRAIT_FEATURE_IMPORT_DMABUF,
		[STRAIT_IMPORT_NVP2P] = STRAIT_FEATURE_IMPORT_NVP2P,
		[STRAIT_IMPORT_PEER] = STRAIT_FEATURE_IMPORT_PEER,
	};

	return kind < ARRAY_SIZE(need) && (features & need[kind]);
}

uint64_t module_import_page(uint32_t kind)
{
	return kind == STRAIT_IMPORT_NVP2P ? NVP2P_PAGE : os_page_size();
}

int module_import(int fd, struct strait_ioc_import *req)
{
	req->size = sizeof(*req);
	return os_ioctl(fd, STRAIT_IOC_IMPORT, req);
}

int module_import_pages(int fd, uint32_t kind, uint64_t addr, uint64_t len, struct page_span *pages,
			struct strait_ioc_import *req)
{
	*pages = page_span(addr, len, module_import_page(kind));
	*req = (struct strait_ioc_import){ .kind = kind, .fd = -1, .address = pages->start, .length = pages->length };
	return module_import(fd, req);
}

void module_release(int fd, uint32_t handle)
{
	struct strait_ioc_release req = { .size = sizeof(req), .handle = handle };

	os_ioctl(fd, STRAIT_IOC_RELEASE, &req);
}

int module_check(int fd, struct strait_ioc_check *req)
{
	req->size = sizeof(*req);
	return os_ioctl(fd, STRAIT_IOC_CHECK, req);
}

int module_io(int fd, struct strait_ioc_io *req)
{
	req->size = sizeof(*req);
	return os_ioctl(fd, STRAIT_IOC_IO, req);
}

int module_io_queue(int fd, struct os_ring *ring, const struct strait_ioc_io *req, void *tag)
{
	struct strait_uring where = { .file_offset = req->file_offset, .region_offset = req->region_offset };
	struct os_command cmd = { .op = req->op == STRAIT_OP_READ ? STRAIT_URING_READ : STRAIT_URING_WRITE,
				  .length = (uint32_t)req->length,
				  .address = req->handle,
				  .file = req->fd };

	_Static_assert(sizeof(where) == sizeof(cmd.args), "the arguments of a command");
	memcpy(cmd.args, &where, sizeof(where));
	return os_ring_command(ring, fd, &cmd, tag);
}
