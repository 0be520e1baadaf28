// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The clients: registration, the choice of one for a range, unregistration. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "peer.h"

static DEFINE_MUTEX(peer_registry_lock);	/* registry_clients, peer_client.gone */
static LIST_HEAD(registry_clients);

static void client_free(struct kref *kref)
{
	struct peer_client *client = container_of(kref, struct peer_client, kref);

	xa_destroy(&client->contexts);
	kfree(client);
}

void peer_client_put(struct peer_client *client)
{
	kref_put(&client->kref, client_free);
}

bool peer_client_use(struct peer_client *client)
{
	bool used;

	mutex_lock(&peer_registry_lock);
	used = !client->gone;
	if (used)
		refcount_inc(&client->users);
	mutex_unlock(&peer_registry_lock);
	return used;
}

void peer_client_unuse(struct peer_client *client)
{
	if (refcount_dec_and_test(&client->users))
		complete(&client->idle);
}

static bool client_has_memory(struct peer_client *client, u64 address, u64 length)
{
	void *priv = NULL;

	if (client->ops->acquire(address, length, NULL, NULL, &priv) != 1)
		return false;
	if (client->ops->release)
		client->ops->release(priv);
	return true;
}

struct peer_client *peer_client_find(u64 address, u64 length, bool unrevoked)
{
	struct peer_client *client, *found = NULL;

	mutex_lock(&peer_registry_lock);
	list_for_each_entry(client, &registry_clients, node) {
		if (unrevoked && client->invalidates)
			continue;
		if (client_has_memory(client, address, length)) {
			kref_get(&client->kref);
			found = client;
			break;
		}
	}
	mutex_unlock(&peer_registry_lock);
	return found;
}

static const char *client_missing_function(const struct peer_memory_client *ops)
{
	return !ops->acquire ? "acquire" :
	       !ops->get_pages ? "get_pages" :
	       !ops->dma_map ? "dma_map" :
	       !ops->dma_unmap ? "dma_unmap" :
	       !ops->put_pages ? "put_pages" : NULL;
}

static bool client_unmaps(const struct peer_memory_client *ops)
{
	const struct peer_memory_client_ex *ex;

	if (!ops->version[IB_PEER_MEMORY_VER_MAX - 1])
		return false;
	ex = container_of(ops, struct peer_memory_client_ex, client);
	return ex->ex_size >= offsetofend(struct peer_memory_client_ex, flags) &&
	       ex->flags & PEER_MEM_INVALIDATE_UNMAPS;
}

static int registry_invalidate(void *reg_handle, u64 core_context)
{
	return peer_context_invalidate(reg_handle, core_context);
}

void *ib_register_peer_memory_client(const struct peer_memory_client *peer_client,
				     invalidate_peer_memory *invalidate_callback)
{
	const char *missing = client_missing_function(peer_client);
	struct peer_client *client;

	if (missing) {
		pr_err("client %.*s has no function %s\n", IB_PEER_MEMORY_NAME_MAX - 1,
		       peer_client->name, missing);
		return NULL;
	}
	client = kzalloc(sizeof(*client), GFP_KERNEL);
	if (!client)
		return NULL;
	kref_init(&client->kref);
	client->ops = peer_client;
	strscpy(client->name, peer_client->name, sizeof(client->name));
	/* The last byte is a flag. */
	strscpy(client->version, peer_client->version, sizeof(client->version) - 1);
	client->invalidates = invalidate_callback;
	client->unmaps = client->invalidates && client_unmaps(peer_client);
	xa_init_flags(&client->contexts, XA_FLAGS_ALLOC1);
	client->next = 1;
	refcount_set(&client->users, 1);
	init_completion(&client->idle);
	if (invalidate_callback)
		*invalidate_callback = registry_invalidate;
	mutex_lock(&peer_registry_lock);
	list_add_tail(&client->node, &registry_clients);
	mutex_unlock(&peer_registry_lock);
	return client;
}
EXPORT_SYMBOL(ib_register_peer_memory_client);

/* The next context after *@ticket, with a reference. */
static struct peer_context *client_next_context(struct peer_client *client, unsigned long *ticket)
{
	struct peer_context *ctx;

	xa_lock(&client->contexts);
	ctx = xa_find_after(&client->contexts, ticket, ULONG_MAX, XA_PRESENT);
	if (ctx)
		kref_get(&ctx->kref);
	xa_unlock(&client->contexts);
	return ctx;
}

void ib_unregister_peer_memory_client(void *reg_handle)
{
	struct peer_client *client = reg_handle;
	struct peer_context *ctx;
	unsigned long ticket = 0;

	mutex_lock(&peer_registry_lock);
	list_del(&client->node);
	WRITE_ONCE(client->gone, true);
	mutex_unlock(&peer_registry_lock);
	while ((ctx = client_next_context(client, &ticket))) {
		peer_context_cancel(ctx);
		peer_context_put(ctx);
	}
	peer_client_unuse(client);
	wait_for_completion(&client->idle);
	peer_client_put(client);
}
EXPORT_SYMBOL(ib_unregister_peer_memory_client);

static const char *client_kind(const struct peer_client *client)
{
	if (!client->invalidates)
		return "persistent";
	return client->unmaps ? "extended" : "classic";
}

/* One line for each client: name, version, kind, contexts now, invalidations. */
static int registry_show(char *text, const struct kernel_param *param)
{
	struct peer_client *client;
	int n = 0;

	mutex_lock(&peer_registry_lock);
	list_for_each_entry(client, &registry_clients, node)
		n += scnprintf(text + n, PAGE_SIZE - n, "%s %s %s %d %lld\n", client->name,
			       client->version[0] ? client->version : "-", client_kind(client),
			       atomic_read(&client->n_contexts),
			       (s64)atomic64_read(&client->n_invalidated));
	mutex_unlock(&peer_registry_lock);
	return n;
}

static const struct kernel_param_ops registry_param_ops = {
	.get = registry_show,
};

module_param_cb(clients, &registry_param_ops, NULL, 0444);
MODULE_PARM_DESC(clients, "registered clients: name, version, kind, contexts, invalidations");
