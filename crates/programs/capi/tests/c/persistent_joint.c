/* A persistent port on two switches joins them. Usage: persistent_joint SWITCH */
#include "common.h"

#define BIG 5000u

static char name[16], first[80], second[80], third[80], station[4][80];
static int ctl;

static int
attach_as(const char *port, uint32_t mode, uint16_t ring, uint32_t *index)
{
	struct nmreq_vale_attach a = { .reg.nr_mode = mode, .reg.nr_ringid = ring };
	int done;

	done = request(ctl, port, NETMAP_REQ_VALE_ATTACH, &a);
	if (index)
		*index = a.port_index;
	return done;
}

static int
attach(const char *port)
{
	return attach_as(port, NR_REG_ALL_NIC, 0, NULL);
}

static int
detach(const char *port)
{
	struct nmreq_vale_detach d = { 0 };

	return request(ctl, port, NETMAP_REQ_VALE_DETACH, &d);
}

static int
reg(const char *port)
{
	struct nmreq_register r = { .nr_mode = NR_REG_ALL_NIC };
	int fd = device(), saved;

	if (request(fd, port, NETMAP_REQ_REGISTER, &r) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static void
join(void)
{
	CHECK(attach(first) == 0, "to the first switch");
	CHECK(attach(second) == 0, "to the second one");
}

/* Sends one frame of station `from` to station `to` (-1: to all). */
static void
send_one(struct port *p, int from, int to, uint32_t seq)
{
	struct netmap_ring *r = NETMAP_TXRING(p->nifp, 0);
	struct netmap_slot *s = &r->slot[r->head];
	char *frame = NETMAP_BUF(r, s->buf_idx);

	fill(frame, FRAME, seq);
	memset(frame + 6, 0x10 + 2 * from, 6);
	if (to >= 0)
		memset(frame, 0x10 + 2 * to, 6);
	s->len = FRAME;
	s->flags = 0;
	r->head = r->cur = nm_ring_next(r, r->head);
	CHECK(ioctl(p->fd, NIOCTXSYNC, NULL) == 0, "txsync");
}

/* Checks the number of the next frame. */
static void
expect(struct port *p, uint32_t seq)
{
	struct netmap_ring *r = NETMAP_RXRING(p->nifp, 0);

	CHECK(poll_for(p->fd, POLLIN, 5000) & POLLIN, "frame %u", seq);
	CHECK(seq_of(NETMAP_BUF(r, r->slot[r->head].buf_idx)) == seq, "number %u, not %u",
	      seq_of(NETMAP_BUF(r, r->slot[r->head].buf_idx)), seq);
	r->head = r->cur = nm_ring_next(r, r->head);
	CHECK(ioctl(p->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

/* Drops frames until this one arrives. */
static void
await(struct port *p, uint32_t seq)
{
	struct netmap_ring *r = NETMAP_RXRING(p->nifp, 0);
	uint32_t got = ~seq;

	while (got != seq) {
		CHECK(poll_for(p->fd, POLLIN, 5000) & POLLIN, "frame %u", seq);
		for (; got != seq && r->head != r->tail; r->head = r->cur = nm_ring_next(r, r->head))
			got = seq_of(NETMAP_BUF(r, r->slot[r->head].buf_idx));
	}
	CHECK(ioctl(p->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

/* The switches are separate: frames in flight to a station arrive before new ones of its neighbour. */
static void
settle(struct port *p)
{
	int k;

	for (k = 0; k < 4; k++) {
		send_one(&p[k], k, -1, 1000u);
		await(&p[k ^ 1], 1000u);
	}
}

/* Both switches learn who is behind the port. */
static void
learning(struct port *p)
{
	send_one(&p[0], 0, -1, 1);
	expect(&p[1], 1);
	expect(&p[2], 1);
	expect(&p[3], 1);
	send_one(&p[2], 2, 0, 2);
	expect(&p[0], 2);
	send_one(&p[0], 0, 2, 3);
	expect(&p[2], 3);
	/* These frames went to no other port: this one is the next that the others receive. */
	send_one(&p[2], 2, -1, 4);
	expect(&p[0], 4);
	expect(&p[1], 4);
	expect(&p[3], 4);
}

/* A frame of several slots. */
static void
big(struct port *from, struct port *to)
{
	struct netmap_ring *tx = NETMAP_TXRING(from->nifp, 0), *rx = NETMAP_RXRING(to->nifp, 0);
	uint32_t sent = 0, got = 0;

	for (; sent < BIG; tx->head = tx->cur = nm_ring_next(tx, tx->head)) {
		struct netmap_slot *s = &tx->slot[tx->head];

		memset(NETMAP_BUF(tx, s->buf_idx), sent ? (int)(sent / 1000) : 0xff, 1000);
		s->len = 1000;
		sent += 1000;
		s->flags = sent < BIG ? NS_MOREFRAG : 0;
	}
	CHECK(ioctl(from->fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "the frame");
	for (; got < BIG; rx->head = rx->cur = nm_ring_next(rx, rx->head)) {
		CHECK(rx->head != rx->tail, "it ends after %u bytes", got);
		got += rx->slot[rx->head].len;
	}
	CHECK(got == BIG && rx->head == rx->tail, "%u bytes", got);
	CHECK(ioctl(to->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

static void
told(void)
{
	struct nmreq_port_info_get i = { 0 };
	struct nmreq_vale_polling polling = { 0 };
	struct nmreq_vale_list l = { 0 };
	struct nmreq_port_hdr h = { 0 };
	uint16_t region;

	CHECK(request(ctl, first, NETMAP_REQ_PORT_INFO_GET, &i) == 0, "info");
	CHECK(i.nr_tx_rings == 1 && i.nr_rx_rings == 2 && i.nr_tx_slots == 1024 && i.nr_rx_slots == 512, "first");
	region = i.nr_mem_id;
	memset(&i, 0, sizeof(i));
	CHECK(request(ctl, second, NETMAP_REQ_PORT_INFO_GET, &i) == 0, "info");
	CHECK(i.nr_tx_rings == 2 && i.nr_rx_rings == 1 && i.nr_tx_slots == 512 && i.nr_rx_slots == 1024, "turned round");
	CHECK(i.nr_mem_id == region, "one region");
	CHECK(request(ctl, second, NETMAP_REQ_VALE_LIST, &l) == 0, "list");
	CHECK(request(ctl, second, NETMAP_REQ_PORT_HDR_GET, &h) == 0 && h.nr_hdr_len == 0, "no header");
	CHECK(request(ctl, second, NETMAP_REQ_PORT_HDR_SET, &h) == 0, "that is so");
	h.nr_hdr_len = 12;
	REFUSED(EOPNOTSUPP, request(ctl, second, NETMAP_REQ_PORT_HDR_SET, &h));
	CHECK(request(ctl, first, NETMAP_REQ_PORT_HDR_SET, &h) == 0, "a header");
	h.nr_hdr_len = 0;
	CHECK(request(ctl, second, NETMAP_REQ_PORT_HDR_GET, &h) == 0 && h.nr_hdr_len == 12, "on both sides");
	REFUSED(EFAULT, request(ctl, second, NETMAP_REQ_VALE_POLLING_DISABLE, &polling));
}

static void
refusals(void)
{
	REFUSED(EBUSY, attach(first));
	REFUSED(EBUSY, attach(second));
	REFUSED(EBUSY, attach(third));
	REFUSED(EBUSY, reg(name));
	REFUSED(EBUSY, reg(first));
	REFUSED(EBUSY, reg(second));
	REFUSED(EBUSY, request(ctl, name, NETMAP_REQ_VALE_DELIF, NULL));
}

/* Crossing frames can be watched on either side, though no program has the port open. */
static void
watched(struct port *p)
{
	const char *names[] = {first, second, name};
	struct nmreq_register r;
	struct port m;
	uint32_t k;

	for (k = 0; k < 3; k++) {
		memset(&r, 0, sizeof(r));
		r.nr_mode = NR_REG_ALL_NIC;
		r.nr_flags = NR_MONITOR_RX | NR_MONITOR_TX;
		m = open_port_with(names[k], r);
		send_one(&p[2], 2, -1, 20 + k);
		await(&m, 20 + k);
		send_one(&p[0], 0, -1, 30 + k);
		await(&m, 30 + k);
		close_port(&m);
	}
	/* Earlier frames have crossed once these have. */
	await(&p[2], 32);
	await(&p[0], 22);
}

/* The port leaves the first switch before the second one. */
static void
first_goes(struct port *p)
{
	int fd;

	join();
	exchange(&p[0], &p[2], 100);
	CHECK(detach(first) == 0, "the first");
	REFUSED(ENXIO, detach(first));
	send_one(&p[2], 2, -1, 7);
	await(&p[3], 7);
	CHECK(poll_for(p[0].fd, POLLIN, 50) == 0, "nothing comes over");
	REFUSED(EBUSY, attach(first));
	REFUSED(EBUSY, attach(third));
	REFUSED(EBUSY, reg(name));
	REFUSED(EBUSY, request(ctl, name, NETMAP_REQ_VALE_DELIF, NULL));
	CHECK(detach(second) == 0, "the second");
	REFUSED(ENXIO, detach(second));
	CHECK((fd = reg(name)) >= 0, "it is its own again");
	close(fd);
}

/* The port leaves the second switch, and is an ordinary port of the first. */
static void
second_goes(struct port *p)
{
	struct port own;

	join();
	exchange(&p[2], &p[0], 100);
	CHECK(detach(second) == 0, "the second");
	REFUSED(ENXIO, detach(second));
	own = open_port(name);
	exchange(&own, &p[0], 300);
	exchange(&p[0], &own, 300);
	REFUSED(EBUSY, attach(second));
	close_port(&own);
	CHECK(attach(third) == 0, "elsewhere");
	CHECK(detach(third) == 0, "and off");
	CHECK(detach(first) == 0, "the first");
}

/* A program that had the port open still has its memory mapped, and overwrites it. */
static void
hostile(struct port *p)
{
	struct port own = open_port(name);
	int k;

	close(own.fd);
	for (k = 0; k < 100 && attach(first) < 0; k++)
		usleep(10000);
	CHECK(attach(second) == 0, "join");
	exchange(&p[0], &p[2], 100);
	memset(own.mem, 0xff, own.reg.nr_memsize);
	for (k = 0; k < 300; k++)
		send_one(&p[k % 2 ? 0 : 2], k % 2 ? 0 : 2, -1, (uint32_t)k);
	memset(own.mem, 0x01, own.reg.nr_memsize);
	for (k = 0; k < 300; k++)
		send_one(&p[k % 2 ? 0 : 2], k % 2 ? 0 : 2, -1, (uint32_t)k);
	CHECK(detach(first) == 0 && detach(second) == 0, "it can be taken apart");
	munmap(own.mem, own.reg.nr_memsize);
	settle(p);
	exchange(&p[0], &p[1], 300);
	exchange(&p[2], &p[3], 300);
}

/* Two ports that join the same two switches are a loop, in which a broadcast circulates forever. Other ports are served, and the loop can be ended. */
static void
storm(struct port *p, struct nmreq_vale_newif n)
{
	char also[16], one[80], two[80];
	struct port away[2];
	int k;

	snprintf(also, sizeof(also), "k%d", (int)getpid());
	snprintf(one, sizeof(one), "%.*s:%s", (int)(strchr(first, ':') - first), first, also);
	snprintf(two, sizeof(two), "%.*s:%s", (int)(strchr(second, ':') - second), second, also);
	n.nr_mem_id = 0;
	CHECK(request(ctl, also, NETMAP_REQ_VALE_NEWIF, &n) == 0, "newif");
	join();
	CHECK(attach(one) == 0 && attach(two) == 0, "a second way");
	send_one(&p[0], 0, -1, 1);
	for (k = 0; k < 2; k++) {
		snprintf(station[k], sizeof(station[k]), "%.*s:s%d", (int)(strchr(third, ':') - third), third, k);
		away[k] = open_port(station[k]);
	}
	exchange(&away[0], &away[1], 300);
	CHECK(detach(two) == 0 && detach(one) == 0 && detach(first) == 0 && detach(second) == 0, "the end");
	CHECK(request(ctl, also, NETMAP_REQ_VALE_DELIF, NULL) == 0, "delif");
	for (k = 0; k < 4; k++) {
		struct netmap_ring *r = NETMAP_RXRING(p[k].nifp, 0);

		CHECK(ioctl(p[k].fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		r->head = r->cur = r->tail;
		CHECK(ioctl(p[k].fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	}
	settle(p);
	close_port(&away[0]);
	close_port(&away[1]);
}

int
main(int argc, char **argv)
{
	struct nmreq_port_hdr h = { 0 };
	struct nmreq_vale_newif n = { .nr_tx_rings = 1, .nr_rx_rings = 2, .nr_tx_slots = 1024, .nr_rx_slots = 512 };
	struct port p[4];
	int k, fd;

	CHECK(argc == 2, "usage");
	alarm(60);
	ctl = device();
	snprintf(name, sizeof(name), "j%d", (int)getpid());
	snprintf(first, sizeof(first), "%.40sx:%s", argv[1], name);
	snprintf(second, sizeof(second), "%.40sy:%s", argv[1], name);
	snprintf(third, sizeof(third), "%.40sz:%s", argv[1], name);
	for (k = 0; k < 4; k++) {
		snprintf(station[k], sizeof(station[k]), "%.40s%c:s%d", argv[1], k < 2 ? 'x' : 'y', k);
		p[k] = open_port(station[k]);
	}
	CHECK(request(ctl, name, NETMAP_REQ_VALE_NEWIF, &n) == 0, "newif");
	CHECK(attach(first) == 0, "to a switch");
	CHECK((fd = reg(name)) >= 0, "open");
	REFUSED(EBUSY, attach(second));
	close(fd);
	REFUSED(EINVAL, attach_as(second, NR_REG_NIC_SW, 0, NULL));
	REFUSED(EINVAL, attach_as(second, NR_REG_ALL_NIC, 1, NULL));
	CHECK(attach(second) == 0, "to another one");
	refusals();
	learning(p);
	watched(p);
	told();
	/* Whatever header the port has, other ports receive none. */
	big(&p[2], &p[0]);
	big(&p[0], &p[2]);
	CHECK(request(ctl, first, NETMAP_REQ_PORT_HDR_SET, &h) == 0, "no header");
	big(&p[0], &p[2]);
	big(&p[2], &p[0]);
	CHECK(detach(second) == 0 && detach(first) == 0, "off both");
	settle(p);
	first_goes(p);
	settle(p);
	second_goes(p);
	settle(p);
	hostile(p);
	storm(p, n);
	CHECK(request(ctl, name, NETMAP_REQ_VALE_DELIF, NULL) == 0, "delif");
	REFUSED(ENXIO, reg(name));
	for (k = 0; k < 4; k++)
		close_port(&p[k]);
	close(ctl);
	return 0;
}
