/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_NVME_NVME_H
#define ENDPOINT_NVME_NVME_H

/*
 * A driver for NVMe controllers on pci/pci.h.
 *
 * Lock order: ctrl.map_lock (mappings), ctrl.lock (admin queue, recovery, namespaces), queue.lock (one queue pair).
 * None is held while a region is released.
 *
 * Recovery: a command past its deadline is aborted. If it does not complete after that, or the controller reports a
 * fatal status or an invalid completion, the controller is reset with all queues locked: commands in flight fail, and
 * the queues are created again. If the reset fails, bus mastering is disabled, so that memory can be freed, and the
 * controller is dead: every call fails with -ENODEV.
 */

#include <pthread.h>
#include <stdatomic.h>

#include <strait/nvme.h>

#include "base/list.h"
#include "device/verify.h"
#include "endpoint/endpoint.h"
#include "hw/nvme.h"
#include "pci/pci.h"

#define NVME_SLOT_BITS 10
#define NVME_MAX_ENTRIES (1u << NVME_SLOT_BITS)
#define NVME_MAX_GENERATION 62 /* so that no command identifier is 0xffff, which is reserved */
#define NVME_LIST_BYTES 2048u  /* PRP or SGL entries of each command */
#define NVME_MAX_TRANSFER MIB(1)
#define NVME_ADMIN_ENTRIES 32u
#define NVME_ADMIN_BYTES KIB(64)
#define NVME_EVENTS 16u
#define NVME_AERS 4u
#define NVME_BOUNCES 8u
#define NVME_BOUNCE_BYTES KIB(128)
#define NVME_MAX_QUEUES 256u
#define NVME_MAX_TIMEOUT 3600000000000u

struct nvme_queue;

/* Memory mapped for the controller. */
struct strait_nvme_map {
	struct strait_nvme *ctrl;
	struct list node;		/* in ctrl.maps */
	struct strait_region *region;	/* NULL: host memory of the driver. Compared, never dereferenced */
	struct pci_mapping *_Atomic pm; /* NULL: the memory was revoked */
	uint64_t length;
	atomic_uint users;		 /* commands in flight */
	bool whole;			 /* all of a region, cached for transfers */
	struct strait_nvme_queue *queue; /* the queue whose entries are in this memory, or NULL */
	void *host;			 /* host memory of the driver, or NULL */
};

/* Completion callback of a command, called with the lock of its queue held. */
struct nvme_wait {
	void (*done)(struct nvme_wait *w, const struct strait_nvme_result *r);
};

enum nvme_slot_state { SLOT_FREE, SLOT_FLYING, SLOT_ABORTING, SLOT_EVENT };

/* The data pointer of a submission queue entry. */
struct nvme_where {
	uint64_t data[2]; /* PRP entries, or one SGL descriptor */
	uint32_t flags;	  /* bits of dword 0 */
};

struct nvme_slot {
	uint64_t deadline;
	uint64_t user_data;
	struct nvme_wait *wait; /* NULL: the result goes to queue.done */
	struct strait_nvme_map *map;
	struct nvme_where where; /* data pointer of the command */
	uint64_t list_bus;
	void *list;
	uint16_t cid; /* of the command in flight */
	uint8_t generation;
	uint8_t state;
};

/* A queue pair. Members after @lock are protected by it, or by ctrl.lock for the admin queue. */
struct strait_nvme_queue {
	struct strait_nvme *ctrl;
	uint16_t id; /* 0: the admin queue */
	uint32_t entries;
	uint64_t sq_db, cq_db;		 /* offsets of the doorbells */
	uint32_t *sq_shadow, *cq_shadow; /* NULL without shadow doorbells */
	uint32_t *sq_event, *cq_event;
	struct nvme_sqe *sq;
	struct nvme_cqe *cq;
	uint64_t sq_bus, cq_bus;
	struct strait_nvme_map *host;	/* PRP and SGL lists, and queues that are in host memory */
	struct strait_nvme_map *inside; /* queues that are in a region */
	int irq;			/* eventfd, -1: polled */
	uint32_t vector;
	bool irq_shared;

	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool leader; /* a waiter sleeps on the interrupt */
	bool broken; /* the controller wrote an invalid completion */
	bool gone;   /* deleted at the controller: it could not be created again, or its memory was revoked */
	uint32_t tail, rung, head;
	uint32_t phase;
	uint32_t in_flight;
	uint64_t soonest; /* lower bound of all deadlines */
	uint64_t commands, failed, lost_irqs;
	uint64_t status_checked; /* time of the last check of the controller's status */
	uint32_t n_free;
	uint16_t *free;
	struct nvme_slot *slot;
	struct strait_nvme_result callback_result; /* passed to the completion callback */
	struct strait_nvme_result *done;	   /* a ring of @entries */
	uint32_t done_head, done_count;
};

struct nvme_ns {
	struct strait_nvme_namespace info;
	uint32_t generation; /* changes with the format */
	bool there;
};

struct strait_nvme {
	struct pci_device *pci;
	struct device_set *set;
	struct region_watcher watcher;
	const struct log_sink *log;
	void *owner; /* struct strait_context, for the API */
	atomic_uint refs;
	uint64_t cap;
	uint32_t page_shift;
	uint32_t stride; /* bytes between doorbells */
	uint64_t timeout;
	uint32_t flags;
	uint32_t max_transfer, max_entries;
	uint16_t max_queues;	    /* granted by the controller */
	uint16_t n_endpoint_queues; /* queues for endpoints, identifiers 1 to n_endpoint_queues */
	uint32_t entries;	    /* of the queues for endpoints */
	struct strait_region *queue_region;
	uint64_t queue_offset;
	bool sgl, sgl_bytes; /* SGLs are supported; with any alignment */
	bool volatile_cache;
	uint32_t aerl;
	uint8_t id[4096];
	struct strait_nvme_map *admin_data; /* NVME_ADMIN_BYTES */
	struct strait_nvme_map *shadow;	    /* a page of doorbells, a page of event indices */
	bool shadow_on;
	_Atomic int dead; /* 0, or the errno of every call */

	pthread_mutex_t lock;
	struct strait_nvme_queue *admin;
	struct strait_nvme_queue *queue[NVME_MAX_QUEUES + 1]; /* by identifier */
	struct nvme_ns *ns;
	uint32_t n_ns;
	bool rescan;
	_Atomic uint32_t ns_epoch; /* incremented by every scan */
	struct nvme_wait event_wait;
	uint32_t rearm; /* Asynchronous Event Requests to submit again */
	struct strait_nvme_event event[NVME_EVENTS];
	uint32_t event_head, event_count;
	bool resetting;
	uint64_t timeouts, aborts, resets, events;

	pthread_mutex_t map_lock;
	struct list maps;

	pthread_mutex_t bounce_lock;
	pthread_cond_t bounce_cond;
	struct strait_nvme_map *bounce[NVME_BOUNCES]; /* free bounce buffers */
	uint32_t n_bounce, made_bounce;

	verify_verdict pair[ENDPOINT_DEVICES];
};

/* ctrl.c: takes ownership of @pci, also on failure. */
int nvme_ctrl_open(struct device_set *set, struct pci_device *pci, const struct strait_nvme_opts *opts,
		   struct strait_nvme **ret);
void nvme_ref(struct strait_nvme *ctrl);
void nvme_unref(struct strait_nvme *ctrl);
void nvme_info(struct strait_nvme *ctrl, struct strait_nvme_info *info);
/* Disable the controller; enable it and create its queues. ctrl.lock is held. */
int nvme_disable(struct strait_nvme *ctrl);
int nvme_start(struct strait_nvme *ctrl);

/* admin.c: run one command and wait. ctrl.lock is held in all but nvme_admin() and nvme_log_page(). */
int nvme_admin_locked(struct strait_nvme *ctrl, const struct strait_nvme_command *cmd, struct strait_nvme_result *r);
int nvme_admin(struct strait_nvme *ctrl, const struct strait_nvme_command *cmd, void *data, size_t len,
	       struct strait_nvme_result *r);
int nvme_identify(struct strait_nvme *ctrl, uint32_t cns, uint32_t nsid, void *page);
int nvme_set_queues(struct strait_nvme *ctrl, uint32_t want);
int nvme_log_page(struct strait_nvme *ctrl, uint32_t nsid, uint32_t page, uint64_t off, void *buf, size_t len);

/* event.c */
void nvme_events_start(struct strait_nvme *ctrl);
void nvme_event_arrived(struct strait_nvme *ctrl, uint32_t result);
int nvme_event_next(struct strait_nvme *ctrl, struct strait_nvme_event *event);
/* Handle pending events, unless another thread holds ctrl.lock. */
void nvme_events_look(struct strait_nvme *ctrl);

/* ns.c. ctrl.lock is held in nvme_scan(). */
int nvme_scan(struct strait_nvme *ctrl);
/* -ENOENT if there is no such namespace. */
int nvme_ns_find(struct strait_nvme *ctrl, uint32_t nsid, struct nvme_ns *ns);

/* queue_pair.c: memory of a queue pair, and its creation and deletion at the controller. */
int nvme_queue_new(struct strait_nvme *ctrl, uint16_t id, const struct strait_nvme_queue_opts *opts,
		   struct strait_nvme_queue **ret);
void nvme_queue_free(struct strait_nvme_queue *q);
void nvme_queue_rewind(struct strait_nvme_queue *q);
/* Create the queues at the controller, delete them. ctrl.lock is held. */
int nvme_queue_attach(struct strait_nvme_queue *q);
void nvme_queue_detach(struct strait_nvme_queue *q);
int nvme_queue_open(struct strait_nvme *ctrl, const struct strait_nvme_queue_opts *opts,
		    struct strait_nvme_queue **ret);
void nvme_queue_close(struct strait_nvme_queue *q);

/* queue.c: commands. The lock of the queue is held, except in nvme_is_stuck(). */
int nvme_put(struct strait_nvme_queue *q, const struct strait_nvme_command *cmd, struct nvme_wait *wait, uint64_t now);
/* Queue as many commands as fit; results that were not fetched take room as well. */
int nvme_put_many(struct strait_nvme_queue *q, const struct strait_nvme_command *cmds, unsigned int n, uint64_t now);
void nvme_ring(struct strait_nvme_queue *q);
unsigned int nvme_reap(struct strait_nvme_queue *q);
void nvme_finish(struct strait_nvme_queue *q, struct nvme_slot *s, int status, uint32_t nvme_status, uint32_t result);
/* Has the controller stopped: removed, fatal error, bus mastering off? */
bool nvme_is_stuck(struct strait_nvme *ctrl, const char **why);
/* Is a deadline past, or the queue or the controller in error? Then nvme_recover() is due. */
bool nvme_needs_help(struct strait_nvme_queue *q, uint64_t now);

/* poll.c: called without a lock held. */
struct nvme_until {
	bool (*met)(void *arg); /* called with the lock of the queue held */
	void *arg;
	uint64_t deadline; /* UINT64_MAX: none */
};

/* Reap until @u is met or its deadline is past: 0 or -ETIMEDOUT. Recovers the queue. Returns with it locked. */
int nvme_wait_locked(struct strait_nvme_queue *q, const struct nvme_until *u);
int nvme_submit(struct strait_nvme_queue *q, const struct strait_nvme_command *cmds, unsigned int n);
int nvme_collect(struct strait_nvme_queue *q, unsigned int min, unsigned int max, int64_t timeout_ns,
		 struct strait_nvme_result *results);
/* Run one command and wait. */
int nvme_run(struct strait_nvme_queue *q, const struct strait_nvme_command *cmd, struct strait_nvme_result *r);

/* prp_sgl.c: fill s->where. -EINVAL if neither PRPs nor SGLs can describe the memory. */
int nvme_data(const struct strait_nvme *ctrl, struct nvme_slot *s, const struct pci_mapping *pm, uint64_t off,
	      uint64_t len);

/* recover.c */
void nvme_recover(struct strait_nvme_queue *q);
void nvme_recover_locked(struct strait_nvme_queue *q);
/* Complete all commands in flight with @status. The lock of the queue is held. */
void nvme_fail_all(struct strait_nvme_queue *q, int status);
int nvme_reset(struct strait_nvme *ctrl);
int nvme_reset_locked(struct strait_nvme *ctrl, const char *why);

/* map.c */
int nvme_map_host(struct strait_nvme *ctrl, uint64_t len, struct strait_nvme_map **ret);
int nvme_map_region(struct strait_nvme *ctrl, struct strait_region *r, uint64_t off, uint64_t len, bool whole,
		    struct strait_nvme_map **ret);
/* The cached mapping of the whole region, created on first use. */
int nvme_map_whole(struct strait_nvme *ctrl, struct strait_region *r, struct strait_nvme_map **ret);
void nvme_unmap(struct strait_nvme_map *m);
void nvme_unmap_region(struct strait_nvme *ctrl, struct strait_region *r);
struct strait_nvme_map *nvme_bounce_get(struct strait_nvme *ctrl);
void nvme_bounce_put(struct strait_nvme *ctrl, struct strait_nvme_map *m);

/* io.c: blocks between a namespace and mapped memory, with many commands in flight. */
struct nvme_job {
	struct strait_nvme_map *map;
	uint64_t map_offset;
	uint64_t offset; /* in bytes; offset and length are multiples of the block size */
	uint64_t length;
	uint64_t deadline;
	const atomic_bool *cancel;
	uint32_t nsid;
	uint32_t lba_shift;
	uint32_t control; /* dword 12 */
	bool write;
	int err;
	uint32_t nvme_status;
};

/* How many bytes from the start on were transferred. */
uint64_t nvme_io(struct strait_nvme *ctrl, struct nvme_job *job);
/* The command for @n bytes of the job from @at. */
struct strait_nvme_command nvme_job_command(const struct nvme_job *job, uint64_t at, uint64_t n);
/* Log the status of the block at @at, if it is an error. */
void nvme_job_say(const struct strait_nvme *ctrl, const struct nvme_job *job, uint64_t at);
/* Is the status transient, so that a retry may succeed? */
bool nvme_worth_retrying(uint32_t nvme_status);
/* The queue of the calling thread. */
struct strait_nvme_queue *nvme_queue_mine(struct strait_nvme *ctrl);

/* verify_dma.c: does DMA of the drive to memory of @dev arrive? Verified once. 0, or -EREMOTEIO if not. */
int nvme_verify_dma(struct strait_nvme *ctrl, const struct nvme_job *how, struct strait_device *dev);

/* endpoint.c */
int nvme_endpoint_open(struct strait_nvme *ctrl, uint32_t nsid, uint32_t flags, struct strait_endpoint **ret);
int nvme_endpoint_info(struct strait_endpoint *ep, struct strait_nvme_endpoint_info *info);
int nvme_endpoint_zeroes(struct strait_endpoint *ep, uint64_t off, uint64_t len);
int nvme_endpoint_deallocate(struct strait_endpoint *ep, uint64_t off, uint64_t len);

static inline uint32_t nvme_reg32(const struct strait_nvme *ctrl, unsigned int reg)
{
	return pci_read32(ctrl->pci, 0, reg);
}

static inline int nvme_dead(const struct strait_nvme *ctrl)
{
	return atomic_load_explicit(&ctrl->dead, memory_order_acquire);
}

#endif
