/*
 * Monitors of a port with several rings, a persistent one, by its own name and by its name on the switch: ring i of the monitor has the
 * frames of rings i of the port. Usage: monitor_rings SWITCH
 */
#include "common.h"

#define TX_RINGS 2u
#define RX_RINGS 3u

static const char *own = "mrings0";
static char full[64];

static struct port
monitor_of(const char *name, uint64_t flags, int ring)
{
	struct nmreq_register reg = { .nr_mode = ring < 0 ? NR_REG_ALL_NIC : NR_REG_ONE_NIC };

	reg.nr_ringid = ring < 0 ? 0 : (uint16_t)ring;
	reg.nr_flags = flags;
	return open_port_with(name, reg);
}

static int
refusal(const char *name, uint32_t mode, uint16_t ring)
{
	struct nmreq_register reg = { .nr_mode = mode, .nr_ringid = ring, .nr_flags = NR_MONITOR_RX };
	int fd = device(), why = 0;

	if (request(fd, name, NETMAP_REQ_REGISTER, &reg) < 0)
		why = errno;
	close(fd);
	return why;
}

static void
make(void)
{
	struct nmreq_vale_newif newif = { .nr_tx_rings = TX_RINGS, .nr_rx_rings = RX_RINGS };
	struct nmreq_vale_attach attach = { .reg.nr_mode = NR_REG_ALL_NIC };
	int fd = device();

	newif.nr_tx_slots = newif.nr_rx_slots = 64;
	CHECK(request(fd, own, NETMAP_REQ_VALE_NEWIF, &newif) == 0, "newif");
	CHECK(refusal(own, NR_REG_ALL_NIC, 0) == EINVAL, "on no switch");
	CHECK(request(fd, full, NETMAP_REQ_VALE_ATTACH, &attach) == 0, "attach");
	CHECK(refusal(own, NR_REG_ALL_NIC, 0) == EINVAL && refusal(full, NR_REG_ALL_NIC, 0) == EINVAL, "not open");
	close(fd);
}

static void
unmake(void)
{
	struct nmreq_vale_detach detach = { 0 };
	int fd = device();

	CHECK(request(fd, full, NETMAP_REQ_VALE_DETACH, &detach) == 0, "detach");
	CHECK(request(fd, own, NETMAP_REQ_VALE_DELIF, NULL) == 0, "delif");
	close(fd);
}

/* The frames that ring `ring` of a monitor has, all with or without the mark. */
static uint32_t
found(struct port *m, uint32_t ring, int sent)
{
	struct netmap_ring *r = NETMAP_RXRING(m->nifp, ring);
	uint32_t n = 0;

	for (; r->head != r->tail; r->head = r->cur = nm_ring_next(r, r->head), n++)
		CHECK(!(r->slot[r->head].flags & NS_TXMON) == !sent, "ring %u: flags 0x%x", ring, r->slot[r->head].flags);
	return n;
}

static void
wait_for(struct port *m, uint32_t ring, uint32_t count, int sent)
{
	uint32_t got = 0;

	while (got < count) {
		CHECK(poll_for(m->fd, POLLIN, 5000) & POLLIN, "ring %u: %u of %u", ring, got, count);
		got += found(m, ring, sent);
	}
	CHECK(got == count, "ring %u: %u of %u", ring, got, count);
}

static void
send_on(struct port *p, uint32_t ring, uint32_t count, char to)
{
	struct netmap_ring *r = NETMAP_TXRING(p->nifp, ring);
	uint32_t i;

	for (i = 0; i < count; i++) {
		char *frame = NETMAP_BUF(r, r->slot[r->head].buf_idx);

		fill(frame, FRAME, i);
		memcpy(frame, (char[6]){ 2, 0, 0, 0, 0, to }, 6);
		memcpy(frame + 6, (char[6]){ 2, 0, 0, 0, 0, to ^ 1 }, 6);
		r->slot[r->head].len = FRAME;
		r->head = r->cur = nm_ring_next(r, r->head);
	}
	CHECK(ioctl(p->fd, NIOCTXSYNC, NULL) == 0, "txsync");
}

static void
drain(struct port *p, uint32_t ring, uint32_t count)
{
	struct netmap_ring *r = NETMAP_RXRING(p->nifp, ring);
	uint32_t got = 0;

	while (got < count) {
		CHECK(poll_for(p->fd, POLLIN, 5000) & POLLIN, "ring %u: %u of %u", ring, got, count);
		got += nm_ring_space(r);
		r->head = r->cur = r->tail;
	}
	CHECK(ioctl(p->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

/* Frames from each tx ring of the port, then to some of its rx rings. */
static void
rings_of(const char *name, struct port *port, struct port *other)
{
	struct port all = monitor_of(name, NR_MONITOR_TX | NR_MONITOR_RX, -1), one = monitor_of(name, NR_MONITOR_TX, 1);
	struct port only = monitor_of(name, NR_MONITOR_RX, 2);
	uint32_t i;

	CHECK(all.reg.nr_tx_rings == 1 && all.reg.nr_rx_rings == RX_RINGS, "%u and %u rings", all.reg.nr_tx_rings,
	    all.reg.nr_rx_rings);
	CHECK(all.reg.nr_tx_slots == 64 && all.reg.nr_rx_slots == 64, "the port's slots");
	for (i = 0; i < RX_RINGS; i++) {
		CHECK(NETMAP_RXRING(all.nifp, i)->ringid == i, "ring %u", i);
		CHECK((one.nifp->ring_ofs[2 + i] != 0) == (i == 1), "of one ring, ring %u", i);
	}
	/* The address is unknown: the frame goes to all ports. */
	send_on(port, 0, 10, 4);
	wait_for(&all, 0, 10, 1);
	drain(other, 0, 10);
	send_on(port, 1, 11, 4);
	wait_for(&all, 1, 11, 1);
	wait_for(&one, 1, 11, 1);
	drain(other, 0, 11);
	/* The answers go to one port, to the ring with the sender's number. */
	send_on(other, 0, 12, 5);
	wait_for(&all, 0, 12, 0);
	drain(port, 0, 12);
	send_on(other, 2, 13, 5);
	wait_for(&all, 2, 13, 0);
	wait_for(&only, 2, 13, 0);
	drain(port, 2, 13);
	for (i = 0; i < RX_RINGS; i++)
		CHECK(found(&all, i, 0) == 0, "no more on ring %u", i);
	CHECK(poll_for(one.fd, POLLIN, 5) == 0 && poll_for(only.fd, POLLIN, 5) == 0, "one ring each");
	CHECK(refusal(name, NR_REG_ONE_NIC, RX_RINGS) == EINVAL, "no such ring");
	CHECK(refusal(name, NR_REG_SW, 0) == EINVAL && refusal(name, NR_REG_NIC_SW, 0) == EINVAL, "no host rings");
	close_port(&only);
	close_port(&one);
	close_port(&all);
}

/* A port that outlives its program also leaves its monitors without anything to watch. */
static void
ended(const char *name, struct port *port)
{
	struct port m = monitor_of(name, NR_MONITOR_RX, -1);

	close_port(port);
	CHECK(poll_for(m.fd, POLLIN, 5000) == POLLERR, "nobody has the port open");
	close_port(&m);
	*port = open_port(full);
}

int
main(int argc, char **argv)
{
	struct nmreq_register reg = { .nr_mode = NR_REG_ALL_NIC, .nr_tx_rings = 3 };
	struct port port, other;
	char beside[64];
	int k;

	CHECK(argc == 2, "a switch");
	alarm(30);
	snprintf(full, sizeof(full), "%s:%s", argv[1], own);
	snprintf(beside, sizeof(beside), "%s:beside", argv[1]);
	make();
	port = open_port(full);
	other = open_port_with(beside, reg);
	for (k = 0; k < 2; k++) {
		rings_of(k ? own : full, &port, &other);
		ended(k ? own : full, &port);
	}
	close_port(&port);
	close_port(&other);
	unmake();
	return 0;
}
