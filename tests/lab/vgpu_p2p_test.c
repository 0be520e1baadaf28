/* SPDX-License-Identifier: MIT */
/* The lab's GPU: the contract of nvidia_p2p, rule by rule, with a consumer in the kernel. */
#include "consumer.h"

#include <signal.h>

#define NOTSUPP (-524) /* the kernel's own, which user space has no name for */

TEST(a_page_table_says_where_the_pages_are)
{
	int fd = gpu_open(), c = consumer_open();
	struct strait_vgpu_info info = gpu_info(fd);
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 5 * PAGE), n = gpu_alloc(fd, PINNABLE, PAGE);
	struct vt_get get = { .va = (uintptr_t)m.p, .len = m.len }, part;
	uint64_t pinned = gpu_counters(fd).p2p_pinned_bytes;

	ASSERT_OK(consumer_try_get(c, &get));
	ASSERT_EQ(get.version, 0x00020000);
	ASSERT_EQ(get.page_size, 1);
	ASSERT_EQ(get.entries, 5);
	ASSERT_EQ(get.table_flags, 0);
	ASSERT_EQ(get.first, info.bar_base + m.bar);
	ASSERT_EQ(get.last, get.first + 4 * PAGE);
	ASSERT_EQ(gpu_counters(fd).p2p_pinned_bytes - pinned, m.len);
	/* A part of it, and the other kind of memory. */
	part = (struct vt_get){ .va = (uintptr_t)m.p + PAGE, .len = 2 * PAGE };
	ASSERT_OK(consumer_try_get(c, &part));
	ASSERT_EQ(part.first, get.first + PAGE);
	ASSERT_EQ(part.entries, 2);
	ASSERT_MEMEQ(part.uuid, get.uuid, sizeof(get.uuid));
	part = (struct vt_get){ .va = (uintptr_t)n.p, .len = PAGE };
	ASSERT_OK(consumer_try_get(c, &part));
	ASSERT_EQ(part.first, info.bar_base + n.bar);
	close(c);
	close(fd);
}

TEST(wrong_arguments_are_refused)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE), gone = gpu_alloc(fd, PLAIN, PAGE);
	struct vt_get good = { .va = (uintptr_t)m.p, .len = m.len }, get;
	struct strait_vgpu_info info = gpu_info(fd);
	unsigned char *p;

#define REFUSED(err, ...)                                                                                              \
	do {                                                                                                           \
		get = good;                                                                                            \
		__VA_ARGS__;                                                                                           \
		ASSERT_EQ(consumer_try_get(c, &get), err);                                                             \
	} while (0)
	REFUSED(-EINVAL, get.flags = VT_GET_NO_CALLBACK);
	REFUSED(-EINVAL, get.flags = VT_GET_NO_TABLE);
	REFUSED(-EINVAL, get.len = 0);
	REFUSED(-EINVAL, get.len = PAGE + 4096);
	REFUSED(-EINVAL, get.va += 4096; get.len = PAGE);
	REFUSED(-EINVAL, get.len = 5 * PAGE);
	REFUSED(-EINVAL, get.va = 0);
	REFUSED(-EINVAL, get.va = ~0ull & ~(PAGE - 1));
	REFUSED(-EINVAL, get.va = 0xffff888000000000ull);
	REFUSED(-EINVAL, get.len = ~0ull & ~(PAGE - 1));
	REFUSED(-EINVAL, get.flags = VT_GET_PERSISTENT; get.len = 4096);
	REFUSED(-EINVAL, get.flags = VT_GET_PERSISTENT | VT_GET_FLAG_2);
	REFUSED(-EINVAL, get.flags = VT_GET_PERSISTENT | VT_GET_NO_TABLE);
	REFUSED(NOTSUPP, get.flags = VT_GET_PERSISTENT | VT_GET_FLAG_1);
	/* The tokens of another file, or one of the two right ones. */
	REFUSED(-EINVAL, get.token = info.token);
	REFUSED(-EINVAL, get.token = info.token ^ 2; get.va_space = info.va_space);
	REFUSED(0, get.token = info.token; get.va_space = info.va_space);
	/* Host memory, freed memory, a hole. */
	p = gpu_mmap(-1, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
	REFUSED(-EINVAL, get.va = (uintptr_t)p; get.len = PAGE);
	ASSERT_OK(gpu_free(&gone));
	REFUSED(-EINVAL, get.va = (uintptr_t)gone.p; get.len = PAGE);
	ASSERT_EQ(munmap(m.p + PAGE, PAGE), 0);
	REFUSED(-EINVAL, get.va = (uintptr_t)m.p);
	REFUSED(0, get.len = PAGE);
	/* Aligned addresses over memory that is not. */
	p = gpu_mmap(fd, PAGE, PROT_READ, MAP_SHARED, m.offset + 4096);
	ASSERT_TRUE(p != MAP_FAILED);
	REFUSED(-EINVAL, get.va = (uintptr_t)p; get.len = PAGE);
#undef REFUSED
	close(c);
	close(fd);
}

/* mprotect() splits a mapping into pieces that the kernel keeps separate. */
TEST(pieces_of_one_allocation_are_one_range)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE), other = gpu_alloc(fd, PLAIN, PAGE);
	struct vt_get get = { .va = (uintptr_t)m.p, .len = m.len };

	ASSERT_EQ(mprotect(m.p + PAGE, PAGE, PROT_READ), 0);
	ASSERT_OK(consumer_try_get(c, &get));
	ASSERT_EQ(get.entries, 4);
	/* Another allocation in the middle is refused. */
	ASSERT_TRUE(mmap(m.p + PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)other.offset) == m.p + PAGE);
	ASSERT_EQ(consumer_try_get(c, &get), -EINVAL);
	/* So are its own pages in another order. */
	ASSERT_TRUE(mmap(m.p + PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)m.offset) == m.p + PAGE);
	ASSERT_EQ(consumer_try_get(c, &get), -EINVAL);
	close(c);
	close(fd);
}

TEST(put_ends_it)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint32_t id = consumer_get(c, &m, 0, 0);

	ASSERT_EQ(consumer_put(c, id, VT_PUT_NULL), 0);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_WRONG_VA), 0);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_PERSISTENT), -EINVAL);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_PERSISTENT | VT_PUT_FLAG), -EINVAL);
	ASSERT_EQ(consumer_map(c, id), 0);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_KEEP), 0);
	/* The DMA mapping was removed with it. Freed afterwards: no callback. */
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(consumer_status(c, id).called, 0);
	/* Again, with a stale pointer. */
	ASSERT_EQ(consumer_put(c, id, VT_PUT_KEEP), 0);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_KEEP | VT_PUT_PERSISTENT), 0);
	ASSERT_EQ(consumer_map(c, id), -EINVAL);
	close(c);
	close(fd);
}

TEST(the_callback_comes_once_in_the_process_that_frees)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint32_t id = consumer_get(c, &m, 0, VT_CB_FORGET);
	struct vt_status s;

	ASSERT_EQ(consumer_map(c, id), 0);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, m.len);
	/* Unmapping the CPU mapping has no effect on them. */
	gpu_unmap(&m);
	ASSERT_EQ(consumer_status(c, id).called, 0);
	ASSERT_OK(gpu_free(&m));
	s = consumer_status(c, id);
	ASSERT_EQ(s.called, 1);
	ASSERT_EQ(s.tgid, getpid());
	/* What it did not undo was undone afterwards. */
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	ASSERT_EQ(consumer_put(c, id, 0), 0);
	close(c);
	close(fd);
}

TEST(in_the_callback_only_unmap_works)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint32_t id =
		consumer_get(c, &m, 0, VT_CB_GET | VT_CB_PUT | VT_CB_MAP | VT_CB_UNMAP | VT_CB_FREE | VT_CB_QUIESCE);
	struct vt_status s;

	ASSERT_EQ(consumer_map(c, id), 0);
	ASSERT_OK(gpu_free(&m));
	s = consumer_status(c, id);
	ASSERT_EQ(s.called, 1);
	ASSERT_EQ(s.results[VT_R_GET], -EIO);
	ASSERT_EQ(s.results[VT_R_PUT], -EIO);
	ASSERT_EQ(s.results[VT_R_MAP], -EIO);
	ASSERT_EQ(s.results[VT_R_UNMAP], 0);
	ASSERT_EQ(s.results[VT_R_FREE_MAP], 0);
	ASSERT_EQ(s.results[VT_R_FREE_TABLE], 0);
	close(c);
	close(fd);
}

TEST(consumers_of_one_range_each_get_their_own)
{
	int fd = gpu_open(), a = consumer_open(), b = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE), part = m;
	uint32_t one, two, three, reg_window;

	part.p += PAGE;
	part.len = PAGE;
	one = consumer_get(a, &m, 0, 0);
	two = consumer_get(b, &m, 0, 0);
	three = consumer_get(b, &part, 0, 0);
	reg_window = consumer_get(b, &part, VT_GET_PERSISTENT, 0);
	ASSERT_EQ(consumer_map(a, one), 0);
	ASSERT_EQ(consumer_map(b, two), 0);
	ASSERT_EQ(consumer_map(b, reg_window), 0);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 2 * m.len + PAGE);
	/* One unpins: the others keep their pins. */
	ASSERT_EQ(consumer_put(a, one, 0), 0);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, m.len + PAGE);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(consumer_status(a, one).called, 0);
	ASSERT_EQ(consumer_status(b, two).called, 1);
	ASSERT_EQ(consumer_status(b, three).called, 1);
	/* In the order in which they were registered. */
	ASSERT_LT(consumer_status(b, two).order, consumer_status(b, three).order);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, PAGE);
	ASSERT_EQ(consumer_put(b, reg_window, VT_PUT_PERSISTENT), 0);
	close(a);
	close(b);
	close(fd);
}

TEST(a_persistent_pin_outlives_the_owner)
{
	int watch = gpu_open(), fd = gpu_open(), c = consumer_open();
	unsigned char data[256], back[256];
	struct gpu_mem m, next;
	uint64_t before[2];
	uint32_t id;

	gpu_all_free(watch, before);
	m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	id = consumer_get(c, &m, VT_GET_PERSISTENT, 0);
	ASSERT_EQ(consumer_map(c, id), 0);
	fill(m.p, m.len, 31);
	ASSERT_OK(gpu_free(&m));
	ASSERT_TRUE(all_zero(m.p, m.len));
	gpu_unmap(&m);
	close(fd);
	/* The memory is not allocated again, and the engine reads its contents. */
	ASSERT_EQ(gpu_info(watch).mem_free[PLAIN], before[PLAIN] - m.len);
	next = gpu_alloc(watch, PLAIN, 2 * PAGE);
	ASSERT_NE(next.bar, m.bar);
	ASSERT_OK(gpu_free(&next));
	fill(data, sizeof(data), 31);
	ASSERT_EQ(consumer_dma(c, id, 0, 0, back, sizeof(back)), 0);
	ASSERT_MEMEQ(back, data, sizeof(data));
	ASSERT_EQ(consumer_put(c, id, VT_PUT_PERSISTENT | VT_PUT_FLAG), -EINVAL);
	ASSERT_EQ(consumer_put(c, id, 0), -EINVAL);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_PERSISTENT), 0);
	gpu_expect_free(watch, before);
	close(c);
	close(watch);
}

TEST(the_engine_reaches_the_memory)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 3 * PAGE);
	uint32_t id = consumer_get(c, &m, 0, VT_CB_FORGET);
	unsigned char data[VT_DMA_MAX], back[VT_DMA_MAX];
	struct vt_op op = { .id = id };

	ASSERT_OK(gpu_call(c, VT_MAP, &op));
	ASSERT_EQ(op.result, 0);
	ASSERT_EQ(op.entries, 3);
	ASSERT_EQ(op.version, 0x00020003);
	fill(data, sizeof(data), 41);
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_WRITE, 2 * PAGE + 4096, data, sizeof(data)), 0);
	ASSERT_MEMEQ(m.p + 2 * PAGE + 4096, data, sizeof(data));
	expect_outside(&m, 2 * PAGE, 8192);
	fill(m.p + PAGE, sizeof(data), 42);
	ASSERT_EQ(consumer_dma(c, id, 0, PAGE, back, sizeof(back)), 0);
	ASSERT_TRUE(filled(back, sizeof(back), 42));
	/* The rest of it is as it was. */
	ASSERT_TRUE(all_zero(m.p, PAGE));
	ASSERT_EQ(consumer_unmap(c, id, VT_PUT_KEEP), 0);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	/* Twice is allowed. */
	ASSERT_EQ(consumer_unmap(c, id, 0), 0);
	ASSERT_EQ(consumer_unmap(c, id, 0), -EINVAL);
	close(c);
	close(fd);
}

TEST(what_is_of_no_use_says_so)
{
	int fd = gpu_open(), c = consumer_open();
	struct vt_old old;

	ASSERT_OK(gpu_call(c, VT_OLD, &old));
	ASSERT_EQ(old.init_mapping, NOTSUPP);
	ASSERT_EQ(old.destroy_mapping, NOTSUPP);
	ASSERT_EQ(old.rsync_null, -EINVAL);
	ASSERT_EQ(old.rsync_version, -EINVAL);
	ASSERT_EQ(old.rsync_good, 0);
	ASSERT_EQ(old.rsync_again, -EBUSY);
	ASSERT_EQ(old.rsync_registers, -ENODEV);
	close(c);
	close(fd);
}

/* Pins of one process in another: by address only where the address is mapped. */
static int pin_in_child(void *arg)
{
	struct gpu_mem *m = arg;
	int c = open("/dev/strait_vgpu_test", O_RDWR);
	struct vt_get get = { .va = (uintptr_t)m->p, .len = m->len };

	if (c < 0 || gpu_call(c, VT_GET, &get) || get.result != -EINVAL)
		return 1;
	gpu_map(m);
	get.va = (uintptr_t)m->p;
	if (gpu_call(c, VT_GET, &get) || get.result)
		return 2;
	/* Exits with the pin; another process has the file open as well. */
	return 0;
}

TEST(fork_with_a_pin)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint32_t id = consumer_get(c, &m, 0, 0);
	uint64_t before = gpu_counters(fd).callbacks;

	ASSERT_EQ(wait_for(start(pin_in_child, &m)), 0);
	/* The child's exit dropped its pin, and nothing else. */
	ASSERT_EQ(gpu_counters(fd).callbacks, before);
	ASSERT_EQ(consumer_status(c, id).called, 0);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(consumer_status(c, id).called, 1);
	close(c);
	close(fd);
}

struct killed {
	int ready, consumer;
};

static int hold_with_pins(void *arg)
{
	struct killed *k = arg;
	struct gpu_mem m;
	int fd = open("/dev/strait_vgpu0", O_RDWR);

	if (fd < 0 || gpu_try_alloc(fd, PLAIN, 4 * PAGE, &m))
		return 1;
	gpu_map(&m);
	fill(m.p, m.len, 1);
	for (int i = 0; i < 4; i++) {
		struct vt_get get = { .va = (uintptr_t)m.p, .len = m.len, .cb_flags = VT_CB_FORGET };
		struct vt_op op = { 0 };

		if (gpu_call(k->consumer, VT_GET, &get) || get.result)
			return 2;
		op.id = get.id;
		if (gpu_call(k->consumer, VT_MAP, &op) || op.result)
			return 3;
	}
	if (write(k->ready, "x", 1) != 1)
		return 4;
	for (;;)
		pause();
}

/* The consumer outlives the process that made it pin. */
TEST(a_killed_process_calls_back)
{
	int fd = gpu_open(), pipe_[2];
	struct killed k = { .consumer = consumer_open() };
	uint64_t before[2], calls;
	pid_t pid;
	char byte;

	gpu_all_free(fd, before);
	calls = gpu_counters(fd).callbacks;
	ASSERT_EQ(pipe(pipe_), 0);
	k.ready = pipe_[1];
	pid = start(hold_with_pins, &k);
	ASSERT_EQ(read(pipe_[0], &byte, 1), 1);
	ASSERT_EQ(kill(pid, SIGKILL), 0);
	wait_for(pid);
	gpu_expect_free(fd, before);
	ASSERT_EQ(gpu_counters(fd).callbacks, calls + 4);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	for (uint32_t id = 1; id <= 4; id++) {
		ASSERT_EQ(consumer_status(k.consumer, id).called, 1);
		ASSERT_EQ(consumer_status(k.consumer, id).tgid, pid);
	}
	close(k.consumer);
	close(fd);
}

static int free_it(void *arg)
{
	return gpu_free(arg) ? 1 : 0;
}

/* The file owns the memory, and any process that has the file may free it. */
TEST(freed_by_another_process)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint32_t id = consumer_get(c, &m, 0, 0);
	pid_t pid;

	fill(m.p, m.len, 1);
	pid = start(free_it, &m);
	ASSERT_EQ(wait_for(pid), 0);
	ASSERT_EQ(consumer_status(c, id).called, 1);
	ASSERT_EQ(consumer_status(c, id).tgid, pid);
	ASSERT_TRUE(all_zero(m.p, m.len));
	close(c);
	close(fd);
}
