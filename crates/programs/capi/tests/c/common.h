/* Functions of the test programs: failure with a reason, raw requests, numbered frames. */
#ifndef COMMON_H
#define COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <net/netmap_user.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(cond, ...) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: not true: %s (errno %d, %s): ", __FILE__, __LINE__, #cond, errno, \
				strerror(errno)); \
			fprintf(stderr, "" __VA_ARGS__); \
			fputc('\n', stderr); \
			exit(1); \
		} \
	} while (0)

#define REFUSED(e, call) CHECK((long)(call) == -1 && errno == (e), "expected %s", #e)

/* A registered, mapped port. */
struct port {
	int fd;
	struct nmreq_register reg;
	char *mem;
	struct netmap_if *nifp;
};

static inline void
header(struct nmreq_header *h, const char *name, uint16_t type, void *body)
{
	memset(h, 0, sizeof(*h));
	h->nr_version = NETMAP_API;
	h->nr_reqtype = type;
	h->nr_body = (uintptr_t)body;
	snprintf(h->nr_name, sizeof(h->nr_name), "%.63s", name);
}

static inline int
request(int fd, const char *name, uint16_t type, void *body)
{
	struct nmreq_header h;

	header(&h, name, type, body);
	return ioctl(fd, NIOCCTRL, &h);
}

static inline int
device(void)
{
	int fd = open("/dev/netmap", O_RDWR);

	CHECK(fd >= 0, "open /dev/netmap");
	return fd;
}

/* Registers on a fresh descriptor. Returns it, or -1 with errno. */
static inline int
reg_with(const char *name, struct nmreq_register *r, void *options)
{
	struct nmreq_header h;
	int fd = device(), saved;

	header(&h, name, NETMAP_REQ_REGISTER, r);
	h.nr_options = (uintptr_t)options;
	if (ioctl(fd, NIOCCTRL, &h) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static inline struct port
open_port_with(const char *name, struct nmreq_register reg)
{
	struct port p = { .reg = reg, .fd = device() };

	CHECK(request(p.fd, name, NETMAP_REQ_REGISTER, &p.reg) == 0, "register %s", name);
	p.mem = mmap(NULL, p.reg.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
	CHECK(p.mem != MAP_FAILED, "mmap %s", name);
	p.nifp = NETMAP_IF(p.mem, p.reg.nr_offset);
	return p;
}

static inline struct port
open_port_as(const char *name, uint32_t mode, uint64_t flags)
{
	struct nmreq_register reg = { .nr_mode = mode, .nr_flags = flags };

	return open_port_with(name, reg);
}

static inline struct port
open_port(const char *name)
{
	return open_port_as(name, NR_REG_ALL_NIC, 0);
}

static inline void
close_port(struct port *p)
{
	munmap(p->mem, p->reg.nr_memsize);
	close(p->fd);
}

/* A broadcast frame with a number in it. */
static inline void
fill(char *frame, uint32_t len, uint32_t seq)
{
	memset(frame, 0xff, 6);
	memset(frame + 6, 0x02, 6);
	memset(frame + 12, 0x88, 2);
	memset(frame + 14, (int)(seq & 0x7f), len - 14);
	memcpy(frame + 14, &seq, sizeof(seq));
}

static inline uint32_t
seq_of(const char *frame)
{
	uint32_t seq;

	memcpy(&seq, frame + 14, sizeof(seq));
	return seq;
}

#define FRAME 60u

/*
 * How many frames may be under way to a port whose reader gives slots back only with its next sync: up to as many again may
 * be read and not given back, and one slot of a ring always stays empty.
 */
static inline uint32_t
window_of(const struct netmap_ring *rx)
{
	return (rx->num_slots - 1) / 2;
}

/* Puts frames numbered from *seq up to (not including) `end` into a tx ring, as far as it has room. */
static inline void
put_frames(struct netmap_ring *r, uint32_t *seq, uint32_t end)
{
	uint32_t head = r->head;

	for (; head != r->tail && *seq < end; (*seq)++) {
		struct netmap_slot *s = &r->slot[head];

		fill(NETMAP_BUF(r, s->buf_idx), FRAME, *seq);
		s->len = FRAME;
		s->flags = 0;
		head = nm_ring_next(r, head);
	}
	r->head = r->cur = head;
}

/* Takes all frames of an rx ring and checks that their numbers continue from *seq. */
static inline void
take_frames(struct netmap_ring *r, uint32_t *seq)
{
	uint32_t head = r->head;

	for (; head != r->tail; head = nm_ring_next(r, head)) {
		struct netmap_slot *s = &r->slot[head];
		char *frame = NETMAP_BUF(r, s->buf_idx);

		CHECK(s->len == FRAME, "length %u", s->len);
		CHECK(seq_of(frame) == *seq, "frame %u came in the place of %u", seq_of(frame), *seq);
		CHECK(frame[FRAME - 1] == (char)(*seq & 0x7f), "content of frame %u", *seq);
		(*seq)++;
	}
	r->head = r->cur = head;
}

/* Sends all frames received on `rx` on `tx`, by swapping buffers. */
static inline void
swap_all(struct netmap_ring *rx, struct netmap_ring *tx)
{
	while (!nm_ring_empty(rx) && !nm_ring_empty(tx)) {
		struct netmap_slot *rs = &rx->slot[rx->head], *ts = &tx->slot[tx->head];
		uint32_t buf = ts->buf_idx;

		ts->buf_idx = rs->buf_idx;
		rs->buf_idx = buf;
		ts->len = rs->len;
		ts->flags |= NS_BUF_CHANGED;
		rs->flags |= NS_BUF_CHANGED;
		rx->head = rx->cur = nm_ring_next(rx, rx->head);
		tx->head = tx->cur = nm_ring_next(tx, tx->head);
	}
}

/* Calls poll(2) once. Returns the ready events. */
static inline short
poll_for(int fd, short events, int ms)
{
	struct pollfd p;
	int n;

	p.fd = fd;
	p.events = events;
	p.revents = 0;
	do
		n = poll(&p, 1, ms);
	while (n < 0 && errno == EINTR);
	CHECK(n >= 0, "poll");
	return p.revents;
}

/* Moves `count` frames from one port to another, in windows that overflow no ring. */
static inline void
exchange(struct port *from, struct port *to, uint32_t count)
{
	struct netmap_ring *tx = NETMAP_TXRING(from->nifp, 0), *rx = NETMAP_RXRING(to->nifp, 0);
	uint32_t sent = 0, got = 0, window = window_of(rx);

	while (got < count) {
		put_frames(tx, &sent, got + window < count ? got + window : count);
		CHECK(ioctl(from->fd, NIOCTXSYNC, NULL) == 0, "txsync");
		CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "%u of %u frames came", got, count);
		take_frames(rx, &got);
	}
	CHECK(ioctl(to->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

#endif
