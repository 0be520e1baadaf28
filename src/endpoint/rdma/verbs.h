/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_RDMA_VERBS_H
#define ENDPOINT_RDMA_VERBS_H

/*
 * libibverbs and librdmacm, loaded at their first use. Their headers are needed to build; a machine without the
 * libraries runs everything else. Posting and polling are inline functions of the headers, which call the provider of
 * the RDMA device.
 */

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <stddef.h>

/* X(library, function, may be missing) */
#define VERBS_CALLS(X)                                                                                                 \
	X(0, ibv_get_device_list, 0)                                                                                   \
	X(0, ibv_free_device_list, 0)                                                                                  \
	X(0, ibv_get_device_name, 0)                                                                                   \
	X(0, ibv_open_device, 0)                                                                                       \
	X(0, ibv_close_device, 0)                                                                                      \
	X(0, ibv_query_device, 0)                                                                                      \
	X(0, ibv_alloc_pd, 0)                                                                                          \
	X(0, ibv_dealloc_pd, 0)                                                                                        \
	X(0, ibv_reg_mr, 0)                                                                                            \
	X(0, ibv_reg_dmabuf_mr, 1)                                                                                     \
	X(0, ibv_dereg_mr, 0)                                                                                          \
	X(0, ibv_create_comp_channel, 0)                                                                               \
	X(0, ibv_destroy_comp_channel, 0)                                                                              \
	X(0, ibv_create_cq, 0)                                                                                         \
	X(0, ibv_destroy_cq, 0)                                                                                        \
	X(0, ibv_get_cq_event, 0)                                                                                      \
	X(0, ibv_ack_cq_events, 0)                                                                                     \
	X(0, ibv_create_qp, 0)                                                                                         \
	X(0, ibv_destroy_qp, 0)                                                                                        \
	X(0, ibv_modify_qp, 0)                                                                                         \
	X(0, ibv_query_qp, 0)                                                                                          \
	X(0, ibv_query_gid, 0)                                                                                         \
	X(1, rdma_create_event_channel, 0)                                                                             \
	X(1, rdma_destroy_event_channel, 0)                                                                            \
	X(1, rdma_create_id, 0)                                                                                        \
	X(1, rdma_destroy_id, 0)                                                                                       \
	X(1, rdma_migrate_id, 0)                                                                                       \
	X(1, rdma_set_option, 0)                                                                                       \
	X(1, rdma_bind_addr, 0)                                                                                        \
	X(1, rdma_resolve_addr, 0)                                                                                     \
	X(1, rdma_resolve_route, 0)                                                                                    \
	X(1, rdma_create_qp, 0)                                                                                        \
	X(1, rdma_destroy_qp, 0)                                                                                       \
	X(1, rdma_listen, 0)                                                                                           \
	X(1, rdma_connect, 0)                                                                                          \
	X(1, rdma_accept, 0)                                                                                           \
	X(1, rdma_reject, 0)                                                                                           \
	X(1, rdma_disconnect, 0)                                                                                       \
	X(1, rdma_get_cm_event, 0)                                                                                     \
	X(1, rdma_ack_cm_event, 0)

/* Members have the names of the functions: verbs.ibv_alloc_pd(context). */
struct verbs_api {
#define VERBS_MEMBER(library, name, optional) __typeof__(&(name)) name;
	VERBS_CALLS(VERBS_MEMBER)
#undef VERBS_MEMBER
};

/* The headers define macros of these names. */
#undef ibv_reg_mr

extern struct verbs_api verbs;

/* 0; -EOPNOTSUPP with the reason in @why. The libraries are never unloaded. */
int verbs_load(char *why, size_t len);

#endif
