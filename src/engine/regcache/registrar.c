/* SPDX-License-Identifier: MIT */
/* Rent, and the thread that registers the windows that have paid for it. States and owners are in regcache.h. */
#include "base/lock.h"
#include "base/util.h"
#include "engine/regcache/internal.h"
#include "os/os.h"

void regcache_rent_begin(struct reg_cache *k, struct reg_rent *rent)
{
	rent->turns = atomic_load_explicit(&k->turns, memory_order_relaxed);
	rent->began = os_now_ns();
}

void regcache_rent_end(struct reg_cache *k, struct reg_rent *rent)
{
	if (!rent->began)
		return;
	rent->ns += os_now_ns() - rent->began;
	rent->began = 0;
	rent->beside |= rent->turns % 2 || rent->turns != atomic_load_explicit(&k->turns, memory_order_relaxed);
}

static bool owes(const struct reg_ref *p)
{
	return p->ep && !p->reg_window;
}

static void pay_locked(struct reg_cache *k, const struct reg_ref *p, uint64_t ns, uint64_t now)
{
	const struct device_tuning *tuning = &p->dev->tuning;
	uint64_t small = regcache_small_unit(p->dev), unit, start, price;
	struct reg_wanted w = { .ep = p->ep, .dev = p->dev };

	unit = p->len <= small / REGCACHE_SMALL_PART ? small : tuning->window_bytes;
	start = align_down(p->off, unit);
	/* No window holds a read that crosses a border of its unit. */
	if (!regcache_may_cache_locked(p->ep) || p->off + p->len > start + unit)
		return;
	price = admission_price(&k->admission, p->dev->number, min_u64(unit, p->ep_len - start));
	/* Credit is not spent while no window can be wanted. */
	if (k->n_wanted == REGCACHE_WANTED || k->registrar_failed)
		price = UINT64_MAX;
	w.off = start;
	w.unit = unit;
	if (admission_pay(&k->admission, admission_tag(p->ep->facts.inode, p->dev->number, start, unit), ns, price, now,
			  &w.rate))
		regcache_want_locked(k, &w);
}

void regcache_pay(struct reg_cache *k, const struct reg_ref *p, unsigned int n, const struct reg_rent *rent)
{
	uint64_t total = 0, owing = 0, ns, now;

	for (unsigned int i = 0; i < n; i++) {
		uint64_t weight = admission_weight(p[i].len);

		total += weight;
		owing += owes(&p[i]) ? weight : 0;
	}
	if (!owing || !rent->ns)
		return;
	ns = admission_cap(owing, rent->ns * owing / total);
	now = os_now_ns();
	pthread_mutex_lock(&k->lock);
	admission_read(&k->admission, p->dev->number, owing, ns, rent->beside);
	for (unsigned int i = 0; i < n; i++)
		if (owes(&p[i]))
			pay_locked(k, &p[i], ns * admission_weight(p[i].len) / owing, now);
	pthread_mutex_unlock(&k->lock);
}

/* Registering a window brings all of it into memory: not worth it where that is not so already. */
static bool mostly_cached(const struct reg_wanted *p, uint64_t len)
{
	uint64_t bytes;

	return !p->ep->ops->cached(p->ep, p->off, len, &bytes) && bytes >= len / 8 * 7;
}

/* The lock is dropped meanwhile. Returns how long it registered and unregistered. */
static uint64_t register_wanted_locked(struct reg_cache *k, const struct reg_wanted *p)
{
	struct strait_endpoint *ep = p->ep;
	struct list out = LIST_INIT(out);
	struct reg_window *w = NULL;
	uint64_t began, len = 0;
	bool room = false;

	if (!regcache_may_cache_locked(ep) || regcache_find_locked(k, ep, p->dev, p->off, p->unit))
		return 0;
	k->registering = ep;
	pthread_mutex_unlock(&k->lock);
	if (ep->ops->unchanged(ep) && !ep->ops->length(ep, &len) && p->off < len) {
		len = min_u64(p->unit, align_up(len - p->off, os_page_size()));
		room = mostly_cached(p, len);
	}
	pthread_mutex_lock(&k->lock);
	room = room && regcache_make_room_locked(k, len, &p->rate, &out);
	pthread_mutex_unlock(&k->lock);

	began = os_now_ns();
	atomic_fetch_add_explicit(&k->turns, 1, memory_order_relaxed);
	regcache_free_windows(k, &out);
	if (room)
		w = regcache_window_new(k, ep, p->dev, p->off, len, p->unit);
	pthread_mutex_lock(&k->lock);
	/* Meanwhile the lease may have been broken, and a lane may have registered windows. */
	if (w && regcache_may_cache_locked(ep) && !regcache_find_locked(k, ep, p->dev, p->off, p->unit) &&
	    k->bytes + len <= k->budget) {
		regcache_list_locked(k, w, &p->rate);
		list_add_tail(&endpoint_engine(ep)->reg_windows, &w->ep_node);
	} else if (w) {
		list_add_tail(&out, &w->lru_node);
		pthread_mutex_unlock(&k->lock);
		regcache_free_windows(k, &out);
		pthread_mutex_lock(&k->lock);
	}
	atomic_fetch_add_explicit(&k->turns, 1, memory_order_relaxed);
	k->registering = NULL;
	pthread_cond_broadcast(&k->changed);
	return os_now_ns() - began;
}

static void remove_locked(struct reg_cache *k, unsigned int i)
{
	k->n_wanted--;
	for (; i < k->n_wanted; i++)
		k->wanted[i] = k->wanted[i + 1];
}

/* The next window to register: endpoints take turns, so that the windows of one do not hold up those of another. */
static struct reg_wanted take_locked(struct reg_cache *k)
{
	struct reg_wanted w;
	unsigned int i = 0;

	while (i < k->n_wanted && k->wanted[i].ep == k->served)
		i++;
	if (i == k->n_wanted)
		i = 0;
	w = k->wanted[i];
	remove_locked(k, i);
	k->served = w.ep;
	return w;
}

static void *registrar_main(void *arg)
{
	struct reg_cache *k = arg;

	pthread_mutex_lock(&k->lock);
	while (!k->stop) {
		struct reg_wanted w;
		uint64_t took, resume;

		if (!k->n_wanted) {
			pthread_cond_wait(&k->wanted_added, &k->lock);
			continue;
		}
		w = take_locked(k);
		took = register_wanted_locked(k, &w);
		resume = os_now_ns() + admission_pause(&k->admission, w.dev->number, took);
		while (!k->stop && os_now_ns() < resume)
			cond_wait_until(&k->wanted_added, &k->lock, resume);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

void regcache_want_locked(struct reg_cache *k, const struct reg_wanted *w)
{
	if (k->n_wanted == REGCACHE_WANTED)
		return;
	if (!k->registrar_started && !k->registrar_failed) {
		int rc = os_thread("strait-register", registrar_main, k, &k->registrar);

		k->registrar_started = !rc;
		k->registrar_failed = rc != 0;
		if (rc)
			log_warn(k->log, "no thread to register page cache (%s): short reads stay staged",
				 strerror(-rc));
	}
	if (!k->registrar_started)
		return;
	k->wanted[k->n_wanted++] = *w;
	pthread_cond_signal(&k->wanted_added);
}

void regcache_unwant_endpoint_locked(struct reg_cache *k, const struct strait_endpoint *ep)
{
	for (unsigned int i = k->n_wanted; i-- > 0;)
		if (k->wanted[i].ep == ep)
			remove_locked(k, i);
	while (k->registering == ep)
		pthread_cond_wait(&k->changed, &k->lock);
}
