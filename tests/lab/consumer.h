/* SPDX-License-Identifier: MIT */
#ifndef LAB_CONSUMER_H
#define LAB_CONSUMER_H

/* The consumer in the kernel that tests control: kernel/test. */

#include "kernel/test/strait_vgpu_test.h"
#include "vgpu.h"

/* Loads the module. */
int consumer_open(void);
/* nvidia_p2p_get_pages() of @m, or its persistent form; the consumer's id. */
uint32_t consumer_get(int c, const struct gpu_mem *m, uint32_t flags, uint32_t cb_flags);
/* The result of the call itself. */
int consumer_try_get(int c, struct vt_get *get);
int consumer_put(int c, uint32_t id, uint32_t flags);
int consumer_map(int c, uint32_t id);
int consumer_unmap(int c, uint32_t id, uint32_t flags);
struct vt_status consumer_status(int c, uint32_t id);
/* The engine moves @len bytes between @data and the memory. Returns 0 or -errno. */
int consumer_dma(int c, uint32_t id, uint32_t flags, uint64_t off, void *data, uint32_t len);
void consumer_dma_wait(int c);
/* Has the engine not yet moved the bytes of the transfer that was started? It does so at the end of the transfer. */
bool consumer_dma_busy(int c);

uint32_t importer_attach(int c, int fd, uint32_t flags);
int importer_try_attach(int c, int fd, uint32_t flags);
int importer_map(int c, uint32_t id);
void importer_unmap(int c, uint32_t id);
void importer_detach(int c, uint32_t id);
struct vt_buf importer_status(int c, uint32_t id);

#endif
