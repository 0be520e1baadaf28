/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <strait/nvme.h>

#include "api/api.h"
#include "api/nvme.h"
#include "base/util.h"
#include "endpoint/nvme/nvme.h"

/* Every handle references the controller and the context. */
static struct strait_context *owner(const struct strait_nvme *nvme)
{
	return nvme->owner;
}

static void release(struct strait_nvme *nvme)
{
	struct strait_context *ctx = owner(nvme);

	nvme_unref(nvme);
	engine_unref(ctx);
}

static void controller_ref(struct strait_nvme *nvme)
{
	nvme_ref(nvme);
	engine_ref(owner(nvme));
}

/* Takes ownership of @pci, also on failure. */
static int adopt(struct strait_context *ctx, struct pci_device *pci, const struct strait_nvme_opts *o,
		 struct strait_nvme **ret)
{
	struct strait_nvme *nvme;
	int rc = nvme_ctrl_open(&ctx->set, pci, o, &nvme);

	if (rc)
		return rc;
	engine_ref(ctx);
	nvme->owner = ctx;
	*ret = nvme;
	return 0;
}

static int read_opts(const struct strait_context *ctx, const struct strait_nvme_opts *user, struct strait_nvme_opts *o)
{
	int rc;

	*o = (struct strait_nvme_opts){ .size = sizeof(*o) };
	rc = user ? struct_in(o, sizeof(*o), user, STRAIT_NVME_OPTS_SIZE_V1) : 0;
	if (!rc && o->queue_region && device_context(o->queue_region->dev) != ctx)
		rc = -EINVAL;
	return rc;
}

int nvme_adopt(struct strait_context *ctx, struct pci_device *pci, const struct strait_nvme_opts *user,
	       struct strait_nvme **ret)
{
	struct strait_nvme_opts o;
	int rc = read_opts(ctx, user, &o);

	if (rc) {
		pci_close(pci);
		return rc;
	}
	return adopt(ctx, pci, &o, ret);
}

STRAIT_API int strait_nvme_open(struct strait_context *ctx, const char *name, const struct strait_nvme_opts *user,
				struct strait_nvme **ret)
{
	struct strait_nvme_opts o;
	struct pci_device *pci;
	int rc;

	API_CHECK(ctx && name && ret);
	API_ALIVE(ctx);
	rc = read_opts(ctx, user, &o);
	if (!rc)
		rc = pci_open_or_say(&ctx->log, name, o.backend,
				     o.flags & STRAIT_NVME_UNREVOCABLE ? PCI_MAP_UNREVOCABLE : 0, &pci);
	return rc ? rc : adopt(ctx, pci, &o, ret);
}

STRAIT_API void strait_nvme_close(struct strait_nvme *nvme)
{
	if (nvme && !engine_alive(owner(nvme)))
		release(nvme);
}

STRAIT_API int strait_nvme_info(struct strait_nvme *nvme, struct strait_nvme_info *info)
{
	struct strait_nvme_info i;

	API_CHECK(nvme && info);
	API_ALIVE(owner(nvme));
	nvme_info(nvme, &i);
	return struct_out(info, &i, sizeof(i), STRAIT_NVME_INFO_SIZE_V1);
}

STRAIT_API int strait_nvme_namespace(struct strait_nvme *nvme, unsigned int index, struct strait_nvme_namespace *info)
{
	struct strait_nvme_namespace i = { 0 };
	bool found;

	API_CHECK(nvme && info);
	API_ALIVE(owner(nvme));
	nvme_events_look(nvme);
	pthread_mutex_lock(&nvme->lock);
	found = index < nvme->n_ns;
	if (found)
		i = nvme->ns[index].info;
	pthread_mutex_unlock(&nvme->lock);
	return found ? struct_out(info, &i, sizeof(i), STRAIT_NVME_NAMESPACE_SIZE_V1) : -ENOENT;
}

STRAIT_API int strait_nvme_admin(struct strait_nvme *nvme, const struct strait_nvme_command *cmd, void *data,
				 size_t len, struct strait_nvme_result *result)
{
	struct strait_nvme_result r = { 0 };
	int rc;

	API_CHECK(nvme && cmd && result && (data || !len) && len <= NVME_ADMIN_BYTES && !cmd->flags);
	API_ALIVE(owner(nvme));
	switch (cmd->opcode) {
	case NVME_ADMIN_DELETE_SQ:
	case NVME_ADMIN_CREATE_SQ:
	case NVME_ADMIN_DELETE_CQ:
	case NVME_ADMIN_CREATE_CQ:
	case NVME_ADMIN_ABORT:
	case NVME_ADMIN_ASYNC_EVENT:
	case NVME_ADMIN_DBBUF:
		return -EPERM;
	default:
		break;
	}
	/* The number of queues was set when the controller was opened. */
	if (cmd->opcode == NVME_ADMIN_SET_FEATURES && (cmd->cdw10[0] & 0xff) == NVME_FEAT_QUEUES)
		return -EPERM;
	rc = nvme_admin(nvme, cmd, data, len, &r);
	r.user_data = cmd->user_data;
	*result = r;
	return rc;
}

STRAIT_API int strait_nvme_log(struct strait_nvme *nvme, uint32_t nsid, uint32_t page, uint64_t offset, void *buf,
			       size_t len)
{
	API_CHECK(nvme && buf && len);
	API_ALIVE(owner(nvme));
	return nvme_log_page(nvme, nsid, page, offset, buf, len);
}

STRAIT_API int strait_nvme_event(struct strait_nvme *nvme, struct strait_nvme_event *event)
{
	struct strait_nvme_event e;
	int rc;

	API_CHECK(nvme && event && struct_room(event, STRAIT_NVME_EVENT_SIZE_V1));
	API_ALIVE(owner(nvme));
	rc = nvme_event_next(nvme, &e);
	return rc ? rc : struct_out(event, &e, sizeof(e), STRAIT_NVME_EVENT_SIZE_V1);
}

STRAIT_API int strait_nvme_reset(struct strait_nvme *nvme)
{
	API_CHECK(nvme);
	API_ALIVE(owner(nvme));
	return nvme_reset(nvme);
}

STRAIT_API int strait_nvme_map(struct strait_nvme *nvme, struct strait_region *region, uint64_t offset, uint64_t len,
			       struct strait_nvme_map **ret)
{
	int rc;

	API_CHECK(nvme && region && ret && len);
	API_ALIVE(owner(nvme));
	API_CHECK(device_context(region->dev) == owner(nvme));
	rc = nvme_map_region(nvme, region, offset, len, false, ret);
	if (!rc)
		controller_ref(nvme);
	return rc;
}

STRAIT_API void strait_nvme_unmap(struct strait_nvme_map *map)
{
	struct strait_nvme *nvme;

	if (!map || engine_alive(owner(map->ctrl)))
		return;
	nvme = map->ctrl;
	nvme_unmap(map);
	release(nvme);
}

STRAIT_API int strait_nvme_map_iova(struct strait_nvme_map *map, uint64_t offset, uint64_t *bus, uint64_t *run)
{
	struct pci_mapping *pm;
	int rc = 0;

	API_CHECK(map && bus && run && offset < map->length);
	API_ALIVE(owner(map->ctrl));
	/* Count as a user, as a command does, so that the mapping stays. */
	atomic_fetch_add(&map->users, 1);
	pm = atomic_load(&map->pm);
	if (pm)
		*bus = pci_bus(pm, offset, run);
	else
		rc = -ENODEV;
	atomic_fetch_sub(&map->users, 1);
	return rc;
}

STRAIT_API int strait_nvme_queue_open(struct strait_nvme *nvme, const struct strait_nvme_queue_opts *user,
				      struct strait_nvme_queue **ret)
{
	struct strait_nvme_queue_opts o = { .size = sizeof(o) };
	int rc = 0;

	API_CHECK(nvme && ret);
	API_ALIVE(owner(nvme));
	if (user)
		rc = struct_in(&o, sizeof(o), user, STRAIT_NVME_QUEUE_OPTS_SIZE_V1);
	if (!rc && o.region && device_context(o.region->dev) != owner(nvme))
		rc = -EINVAL;
	if (!rc)
		rc = nvme_queue_open(nvme, &o, ret);
	if (!rc)
		controller_ref(nvme);
	return rc;
}

STRAIT_API void strait_nvme_queue_close(struct strait_nvme_queue *queue)
{
	struct strait_nvme *nvme;

	if (!queue || engine_alive(owner(queue->ctrl)))
		return;
	nvme = queue->ctrl;
	nvme_queue_close(queue);
	release(nvme);
}

STRAIT_API int strait_nvme_queue_submit(struct strait_nvme_queue *queue, const struct strait_nvme_command *cmds,
					unsigned int n)
{
	API_CHECK(queue && (cmds || !n));
	API_ALIVE(owner(queue->ctrl));
	return n ? nvme_submit(queue, cmds, n) : 0;
}

STRAIT_API int strait_nvme_queue_wait(struct strait_nvme_queue *queue, unsigned int min, unsigned int max,
				      int64_t timeout_ns, struct strait_nvme_result *results)
{
	API_CHECK(queue && (results || !max));
	API_ALIVE(owner(queue->ctrl));
	return nvme_collect(queue, min, max, timeout_ns, results);
}

STRAIT_API const char *strait_nvme_status_name(uint32_t nvme_status)
{
	return nvme_status_name(nvme_status);
}

STRAIT_API int strait_nvme_endpoint(struct strait_nvme *nvme, uint32_t nsid, uint32_t flags,
				    struct strait_endpoint **ret)
{
	struct strait_endpoint *ep;
	int rc;

	API_CHECK(nvme && ret);
	API_ALIVE(owner(nvme));
	rc = nvme_endpoint_open(nvme, nsid, flags, &ep);
	if (!rc)
		rc = endpoint_adopt(owner(nvme), ep);
	if (!rc)
		*ret = ep;
	return rc;
}

STRAIT_API int strait_nvme_endpoint_info(struct strait_endpoint *ep, struct strait_nvme_endpoint_info *info)
{
	struct strait_nvme_endpoint_info i;
	int rc;

	API_CHECK(ep && info);
	API_ALIVE((struct strait_context *)ep->owner);
	rc = nvme_endpoint_info(ep, &i);
	return rc ? rc : struct_out(info, &i, sizeof(i), STRAIT_NVME_ENDPOINT_INFO_SIZE_V1);
}

STRAIT_API int strait_nvme_write_zeroes(struct strait_endpoint *ep, uint64_t offset, uint64_t len)
{
	API_CHECK(ep);
	API_ALIVE((struct strait_context *)ep->owner);
	return nvme_endpoint_zeroes(ep, offset, len);
}

STRAIT_API int strait_nvme_deallocate(struct strait_endpoint *ep, uint64_t offset, uint64_t len)
{
	API_CHECK(ep);
	API_ALIVE((struct strait_context *)ep->owner);
	return nvme_endpoint_deallocate(ep, offset, len);
}
