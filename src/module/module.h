/* SPDX-License-Identifier: MIT */
#ifndef MODULE_MODULE_H
#define MODULE_MODULE_H

/*
 * Client of strait.ko (uapi/strait.h): what more than one layer asks of the module. A descriptor is that of /dev/strait
 * or, except in module_check() and module_io(), of the node of an attached PCI device. All calls return a negative
 * errno on failure. They set the size member of the requests themselves.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "uapi/strait.h"

struct os_ring;

/*
 * Version, features and limits of the module: -EPROTO if its ABI is not one that this library speaks. @info is filled
 * then as well; it is all zeros if the module did not answer.
 */
int module_info(int fd, struct strait_ioc_info *info);

/* Open /dev/strait: a descriptor, or why there is none. module_info() says whether it can be used. */
int module_open(void);

/* The STRAIT_FEATURE_* in words, "p2pdma dmabuf uring". */
void module_feature_names(uint64_t features, char *text, size_t len);

/* Does a module with these features import memory of this kind, STRAIT_IMPORT_*? */
bool module_imports(uint64_t features, uint32_t kind);

/* Imports of this kind are whole pages of this size: 64 KiB for NVP2P, as nvidia_p2p_get_pages() demands. */
uint64_t module_import_page(uint32_t kind);

/* Import memory. @req: kind, fd, address and length on entry, the rest on return. */
int module_import(int fd, struct strait_ioc_import *req);

/* Import the pages of [addr, addr + len) and set @pages to them. */
int module_import_pages(int fd, uint32_t kind, uint64_t addr, uint64_t len, struct page_span *pages,
			struct strait_ioc_import *req);

/* Release an import. I/O in flight references the memory until it completes. */
void module_release(int fd, uint32_t handle);

/* Would file I/O to an import work? @req->reason says why not. */
int module_check(int fd, struct strait_ioc_check *req);

/* File I/O to or from an import: returns when it is complete. */
int module_io(int fd, struct strait_ioc_io *req);

/* The same as a command on a ring, with STRAIT_FEATURE_URING. @tag comes back with the result. */
int module_io_queue(int fd, struct os_ring *ring, const struct strait_ioc_io *req, void *tag);

/* STRAIT_ATTACH_* as the end of a sentence about the device. */
const char *module_attach_reason(uint32_t reason);

/* Why attaching the device @name failed with -EOPNOTSUPP, and what to do about it. */
void module_attach_explain(const char *name, const struct strait_ioc_attach *req, char *why, size_t len);

#endif
