/*
 * NS_INDIRECT: frames anywhere in the program's memory leave a switch's port as if they were in the slots' buffers; unreadable frames are
 * not sent, which affects neither the program nor its other frames, and nothing in the slots changes.
 * Usage: indirect FROM TO
 */
#define NETMAP_WITH_LIBS
#include "common.h"
#include <sys/wait.h>

#define KINDS 4u
#define PIECE 500u
#define WILD ((char *)0xdead00000000)

static struct port from, to;
static struct netmap_ring *tx, *rx;

static long page;

static char *
file_with_frames(uint32_t first, uint32_t count)
{
	char name[] = "/tmp/netvale-indirect-XXXXXX", frame[FRAME];
	int fd = mkstemp(name);
	uint32_t i;
	char *map;

	CHECK(fd >= 0 && unlink(name) == 0, "a file");
	for (i = 0; i < count; i++) {
		fill(frame, FRAME, first + i);
		CHECK(write(fd, frame, FRAME) == (ssize_t)FRAME, "write");
	}
	map = mmap(NULL, count * FRAME, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(map != MAP_FAILED, "map a file");
	close(fd);
	return map;
}

/* Slots are returned once their frames have been forwarded, which may be after they have arrived. */
static void
wait_for_room(int fd, struct netmap_ring *r)
{
	while (r->head == r->tail)
		CHECK(poll_for(fd, POLLOUT, 5000) & POLLOUT, "room");
}

/* Puts the frame at `frame` into the next slot. */
static struct netmap_slot *
put_at(int fd, struct netmap_ring *r, const char *frame, uint16_t len, uint16_t flags)
{
	struct netmap_slot *s = &r->slot[r->head];

	wait_for_room(fd, r);
	s->len = len;
	s->flags = NS_INDIRECT | flags;
	s->ptr = (uintptr_t)frame;
	r->head = r->cur = nm_ring_next(r, r->head);
	return s;
}

static void
put_own(struct netmap_ring *r, uint32_t seq)
{
	uint32_t end = seq + 1;

	wait_for_room(from.fd, r);
	put_frames(r, &seq, end);
}

static void
sync_tx(struct port *p)
{
	CHECK(ioctl(p->fd, NIOCTXSYNC, NULL) == 0, "txsync");
}

/* Waits for frames *seq up to (not including) `end`. None of the sender's flags may arrive with them. */
static void
expect(struct port *p, uint32_t *seq, uint32_t end)
{
	struct netmap_ring *r = NETMAP_RXRING(p->nifp, 0);

	while (*seq < end) {
		uint32_t i;

		CHECK(poll_for(p->fd, POLLIN, 5000) & POLLIN, "frame %u", *seq);
		for (i = r->head; i != r->tail; i = nm_ring_next(r, i))
			CHECK((r->slot[i].flags & (NS_INDIRECT | NS_TXMON | 0x80)) == 0, "flags %x", r->slot[i].flags);
		take_frames(r, seq);
	}
	CHECK(ioctl(p->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	CHECK(*seq == end && nm_ring_empty(r), "no more than was sent");
}

/* Takes the next frame, of any number of slots. Returns its length. */
static uint32_t
gather(char *into)
{
	uint32_t len = 0, more = 1;

	CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "a frame of several slots");
	while (more) {
		struct netmap_slot *s = &rx->slot[rx->head];

		CHECK(rx->head != rx->tail, "a frame with its end");
		memcpy(into + len, NETMAP_BUF(rx, s->buf_idx), s->len);
		len += s->len;
		more = s->flags & NS_MOREFRAG;
		rx->head = rx->cur = nm_ring_next(rx, rx->head);
	}
	return len;
}

/* From heap, stack, a file mapped for reading only, and slots' own buffers, in turn; hundreds in one sync; by poll, too. */
static void
from_everywhere(void)
{
	uint32_t count = window_of(rx), seq = 0, i, round;
	char *heap = malloc(count * FRAME), stack[512][FRAME], *file = file_with_frames(0, count);

	CHECK(count <= 512, "a ring of usual size");
	for (i = 0; i < count; i++) {
		fill(heap + i * FRAME, FRAME, i);
		fill(stack[i], FRAME, i);
	}
	for (round = 0; round < 3; round++) {
		for (i = 0; i < count; i++)
			switch (i % KINDS) {
			case 0: put_own(tx, i); break;
			case 1: put_at(from.fd, tx, heap + i * FRAME, FRAME, 0); break;
			case 2: put_at(from.fd, tx, stack[i], FRAME, 0); break;
			case 3: put_at(from.fd, tx, file + i * FRAME, FRAME, 0); break;
			}
		if (round == 1)
			poll_for(from.fd, POLLOUT, 0);
		else
			sync_tx(&from);
		/* Synced frames are copied: their memory may be reused immediately. */
		memset(heap, 0, round == 2 ? count * FRAME : 0);
		seq = 0;
		expect(&to, &seq, count);
	}
	munmap(file, count * FRAME);
	free(heap);
}

/* Several slots a frame, some of them indirect. */
static void
several_slots(void)
{
	char *whole = malloc(3 * PIECE), got[8192];
	struct netmap_slot *s;
	uint32_t len, seq = 7;

	fill(whole, 3 * PIECE, 1);
	memset(whole + PIECE, 'b', PIECE);
	memset(whole + 2 * PIECE, 'c', PIECE);
	put_at(from.fd, tx, whole, PIECE, NS_MOREFRAG);
	s = put_at(from.fd, tx, NULL, PIECE, NS_MOREFRAG);
	memcpy(NETMAP_BUF(tx, s->buf_idx), whole + PIECE, PIECE);
	s->flags = NS_MOREFRAG;
	put_at(from.fd, tx, whole + 2 * PIECE, PIECE, 0);
	sync_tx(&from);
	len = gather(got);
	CHECK(len == 3 * PIECE && memcmp(got, whole, len) == 0, "%u bytes", len);
	/* A frame that lacks a piece is sent without it. */
	put_at(from.fd, tx, whole, PIECE, NS_MOREFRAG);
	put_at(from.fd, tx, NULL, PIECE, NS_MOREFRAG);
	put_at(from.fd, tx, whole + 2 * PIECE, PIECE, 0);
	put_at(from.fd, tx, whole, PIECE, NS_MOREFRAG);
	put_at(from.fd, tx, WILD, PIECE, NS_MOREFRAG);
	put_at(from.fd, tx, whole + 2 * PIECE, PIECE, 0);
	/* A frame that lacks its first piece is not sent. */
	put_at(from.fd, tx, NULL, PIECE, NS_MOREFRAG);
	put_at(from.fd, tx, whole + PIECE, PIECE, 0);
	put_at(from.fd, tx, WILD, PIECE, NS_MOREFRAG);
	put_at(from.fd, tx, whole + PIECE, PIECE, 0);
	put_own(tx, seq);
	sync_tx(&from);
	for (len = 0; len < 2; len++)
		CHECK(gather(got) == 2 * PIECE && memcmp(got, whole, PIECE) == 0 &&
			memcmp(got + PIECE, whole + 2 * PIECE, PIECE) == 0, "the frame without its middle");
	expect(&to, &seq, seq + 1);
	free(whole);
}

/* A program may set flags and lengths of all its slots once; then only pointers change. */
static void
flag_left_standing(void)
{
	uint32_t i, seq = 0, got = 0, n = tx->num_slots;
	char (*frames)[FRAME] = malloc(n * sizeof(*frames));

	for (i = 0; i < n; i++) {
		tx->slot[i].flags = NS_INDIRECT;
		tx->slot[i].len = FRAME;
	}
	while (seq < 4 * n) {
		uint32_t end = seq + window_of(rx);

		for (; seq < end; seq++) {
			wait_for_room(from.fd, tx);
			fill(frames[tx->head], FRAME, seq);
			tx->slot[tx->head].ptr = (uintptr_t)frames[tx->head];
			tx->head = tx->cur = nm_ring_next(tx, tx->head);
		}
		sync_tx(&from);
		expect(&to, &got, seq);
		sync_tx(&from);
	}
	for (i = 0; i < n; i++)
		CHECK(tx->slot[i].flags == NS_INDIRECT && tx->slot[i].len == FRAME && tx->slot[i].ptr == (uintptr_t)frames[i],
			"slot %u: flags %x, length %u", i, tx->slot[i].flags, tx->slot[i].len);
	free(frames);
}

/* Pointers to nothing: their frames do not arrive, all others do; with valid pointers the same slots work again. */
static void
wild_pointers(void)
{
	char *two = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *wild[] = { NULL, WILD, (char *)1, (char *)-1, (char *)(1ull << 63), NULL, NULL, NULL };
	struct netmap_slot *bad[8];
	uint32_t i, seq = 0, round;
	char frame[FRAME];

	CHECK(two != MAP_FAILED, "two pages");
	memset(two, 0xff, (size_t)page);
	CHECK(mprotect(two + page, (size_t)page, PROT_NONE) == 0, "protect");
	wild[5] = two + page;
	wild[6] = two + page - 20;
	wild[7] = two + page - 1;
	for (round = 0; round < 70; round++) {
		uint32_t first = seq;

		for (i = 0; i < 8; i++) {
			bad[i] = put_at(from.fd, tx, wild[i], FRAME, 0);
			put_own(tx, seq + i);
		}
		errno = 0;
		sync_tx(&from);
		CHECK(errno == 0, "errno is the program's");
		expect(&to, &seq, first + 8);
		for (i = 0; i < 8; i++)
			CHECK((bad[i]->flags & NS_INDIRECT) && bad[i]->len == FRAME && bad[i]->ptr == (uintptr_t)wild[i],
				"the slot is as it was");
		sync_tx(&from);
	}
	/* The same ring again: only the pointers have changed. */
	for (i = 0; i < tx->num_slots; i++) {
		struct netmap_slot *s = &tx->slot[tx->head];

		if (s->flags & NS_INDIRECT) {
			fill(frame, FRAME, seq);
			s->ptr = (uintptr_t)frame;
			tx->head = tx->cur = nm_ring_next(tx, tx->head);
		} else {
			put_own(tx, seq);
		}
		sync_tx(&from);
		expect(&to, &seq, seq + 1);
		sync_tx(&from);
	}
	/* A frame that ends where memory ends. */
	CHECK(mprotect(two + page, (size_t)page, PROT_NONE) == 0, "protect");
	fill(two + page - FRAME, FRAME, seq);
	put_at(from.fd, tx, two + page - FRAME, FRAME, 0);
	sync_tx(&from);
	expect(&to, &seq, seq + 1);
	munmap(two, 2 * (size_t)page);
}

/* Longer than a buffer: not sent. No bytes at all: not sent either. */
static void
lengths(void)
{
	uint32_t seq = 0, size = tx->nr_buf_size;
	char *large = malloc(65536), got[8192];

	fill(large, 65535, 0);
	put_at(from.fd, tx, large, (uint16_t)(size + 1), 0);
	put_own(tx, 0);
	put_at(from.fd, tx, large, 65535, 0);
	put_own(tx, 1);
	put_at(from.fd, tx, large, 0, 0);
	put_own(tx, 2);
	sync_tx(&from);
	expect(&to, &seq, 3);
	put_at(from.fd, tx, large, (uint16_t)size, 0);
	sync_tx(&from);
	CHECK(gather(got) == size && memcmp(got, large, size) == 0, "a full buffer");
	/* Within the slot's own buffer, too. */
	fill(NETMAP_BUF(tx, tx->slot[tx->head].buf_idx) + 30, FRAME, seq);
	put_at(from.fd, tx, NETMAP_BUF(tx, tx->slot[tx->head].buf_idx) + 30, FRAME, 0);
	sync_tx(&from);
	expect(&to, &seq, seq + 1);
	free(large);
}

/* A child sends from its own memory, not from its parent's at the same address. */
static void
child_sends(void)
{
	char *frame = malloc(FRAME);
	uint32_t seq = 1;
	int status;
	pid_t child;

	fill(frame, FRAME, 99);
	child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0) {
		uint32_t i;

		for (i = 1; i < 4; i++) {
			fill(frame, FRAME, i);
			put_at(from.fd, tx, frame, FRAME, 0);
			sync_tx(&from);
		}
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %x", status);
	expect(&to, &seq, 4);
	put_at(from.fd, tx, frame, FRAME, 0);
	sync_tx(&from);
	seq = 99;
	expect(&to, &seq, 100);
	free(frame);
}

/*
 * A bridge between two ports in different regions: received frames are sent by address, and their slots are returned once the
 * frames have left. One of the ports is opened through the old API.
 */
static void
bridge(void)
{
	struct port end = open_port("vale77:end");
	struct nm_desc *out = nm_open("vale77:out", NULL, 0, NULL);
	struct netmap_ring *r;
	uint32_t sent = 0, got = 0, count = 5000;

	CHECK(out != NULL, "nm_open");
	CHECK(out->req.nr_arg2 != to.reg.nr_mem_id, "a memory of its own");
	r = NETMAP_TXRING(out->nifp, 0);
	while (got < count) {
		uint32_t end_of_run = got + window_of(rx) / 2, run = sent;

		put_frames(tx, &sent, end_of_run < count ? end_of_run : count);
		sync_tx(&from);
		while (run < sent) {
			CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "frames to pass on");
			for (; rx->head != rx->tail; run++) {
				struct netmap_slot *s = &rx->slot[rx->head];

				put_at(out->fd, r, NETMAP_BUF(rx, s->buf_idx), s->len, 0);
				rx->head = rx->cur = nm_ring_next(rx, rx->head);
			}
			CHECK(ioctl(out->fd, NIOCTXSYNC, NULL) == 0, "txsync");
			CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		}
		expect(&end, &got, sent);
	}
	nm_close(out);
	close_port(&end);
}

/* On a pipe the flag has no effect, as in netmap: the contents of the slot's buffer arrive, and ptr is not used. */
static void
pipes_ignore_it(void)
{
	struct port a = open_port("indirect{1"), b = open_port("indirect}1");
	struct netmap_ring *r = NETMAP_TXRING(a.nifp, 0), *there = NETMAP_RXRING(b.nifp, 0);
	struct netmap_slot *s;
	uint32_t seq = 5;

	fill(NETMAP_BUF(r, r->slot[r->head].buf_idx), FRAME, seq);
	put_at(a.fd, r, WILD, FRAME, 0);
	sync_tx(&a);
	CHECK(poll_for(b.fd, POLLIN, 5000) & POLLIN, "the frame");
	s = &there->slot[there->head];
	CHECK(s->ptr == 0, "the address stays on this side: %llx", (unsigned long long)s->ptr);
	take_frames(there, &seq);
	CHECK(seq == 6, "one frame");
	close_port(&a);
	close_port(&b);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 3, "two ports");
	alarm(60);
	page = sysconf(_SC_PAGESIZE);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	tx = NETMAP_TXRING(from.nifp, 0);
	rx = NETMAP_RXRING(to.nifp, 0);
	from_everywhere();
	several_slots();
	flag_left_standing();
	wild_pointers();
	lengths();
	child_sends();
	bridge();
	pipes_ignore_it();
	return 0;
}
