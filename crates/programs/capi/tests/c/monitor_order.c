/*
 * When the two kinds of monitors see a frame: a copy monitor when it is sent and when it arrives, a zero-copy monitor when its slot is
 * returned, with the changes that the program has made. Usage: monitor_order FROM TO: two ports that are connected
 */
#include "common.h"

#define COUNT 10u
#define FIRST 4u

static void
expect(struct port *m, uint32_t *seq, uint32_t end)
{
	while (*seq < end) {
		CHECK(poll_for(m->fd, POLLIN, 5000) & POLLIN, "%u of %u frames came", *seq, end);
		take_frames(NETMAP_RXRING(m->nifp, 0), seq);
	}
	CHECK(*seq == end && poll_for(m->fd, POLLIN, 20) == 0, "%u frames and no more", end);
}

/* Returns the next `count` frames of a ring. */
static void
give_back(struct port *p, uint32_t count)
{
	struct netmap_ring *r = NETMAP_RXRING(p->nifp, 0);

	for (; count > 0; count--)
		r->head = nm_ring_next(r, r->head);
	r->cur = r->head;
	CHECK(ioctl(p->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

static void
round_trip(const char *sender, const char *receiver)
{
	struct port from = open_port(sender), to = open_port(receiver), copy, sent, late, second, early;
	uint32_t seq = 0, copied = 0, put = 0, got = 0, again = 0, before = 0;
	struct netmap_ring *r = NETMAP_RXRING(to.nifp, 0);

	copy = open_port_as(receiver, NR_REG_ALL_NIC, NR_MONITOR_RX);
	sent = open_port_as(sender, NR_REG_ALL_NIC, NR_MONITOR_TX);
	late = open_port_as(receiver, NR_REG_ALL_NIC, NR_ZCOPY_MON);
	second = open_port_as(receiver, NR_REG_ALL_NIC, NR_ZCOPY_MON);
	early = open_port_as(sender, NR_REG_ALL_NIC, NR_ZCOPY_MON);
	put_frames(NETMAP_TXRING(from.nifp, 0), &seq, COUNT);
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	while (nm_ring_space(r) < COUNT)
		CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "%u frames came", nm_ring_space(r));
	expect(&copy, &copied, COUNT);
	expect(&sent, &put, COUNT);
	CHECK(poll_for(late.fd, POLLIN, 20) == 0 && poll_for(second.fd, POLLIN, 0) == 0, "nothing is given back yet");
	give_back(&to, FIRST);
	expect(&late, &got, FIRST);
	expect(&second, &again, FIRST);
	/* The program's changes to a frame are visible. */
	r->slot[r->head].len = FRAME - 1;
	give_back(&to, 1);
	CHECK(poll_for(late.fd, POLLIN, 5000) & POLLIN, "one more");
	CHECK(NETMAP_RXRING(late.nifp, 0)->slot[got].len == FRAME - 1, "as it was left");
	give_back(&late, 1);
	got++;
	give_back(&to, COUNT - FIRST - 1);
	expect(&late, &got, COUNT);
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	while (before < COUNT) {
		struct netmap_ring *e = NETMAP_RXRING(early.nifp, 0);

		CHECK(poll_for(early.fd, POLLIN, 5000) & POLLIN, "%u of %u frames came", before, COUNT);
		for (; e->head != e->tail; e->head = e->cur = nm_ring_next(e, e->head), before++)
			CHECK(e->slot[e->head].flags & NS_TXMON, "what was sent");
	}
	CHECK(before == COUNT, "%u frames", before);
	close_port(&early);
	close_port(&second);
	close_port(&late);
	close_port(&sent);
	close_port(&copy);
	close_port(&to);
	close_port(&from);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 3, "two ports");
	alarm(30);
	round_trip(argv[1], argv[2]);
	round_trip(argv[2], argv[1]);
	return 0;
}
