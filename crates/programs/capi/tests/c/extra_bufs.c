/* Extra buffers: walk their list, swap them into slots, send them, return them. Usage: extra_bufs FROM TO */
#include "common.h"

#define EXTRA 32u

int
main(int argc, char **argv)
{
	uint32_t list[EXTRA], i, n = 0, scan, got = 0;
	struct nmreq_register reg = { .nr_mode = NR_REG_ALL_NIC, .nr_extra_bufs = EXTRA };
	struct netmap_ring *tx;
	struct port from, to;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port_with(argv[1], reg);
	CHECK(from.reg.nr_extra_bufs == EXTRA, "%u extra buffers", from.reg.nr_extra_bufs);
	tx = NETMAP_TXRING(from.nifp, 0);
	for (scan = from.nifp->ni_bufs_head; scan; scan = *(uint32_t *)(void *)NETMAP_BUF(tx, scan)) {
		CHECK(n < EXTRA, "a list without end");
		list[n++] = scan;
	}
	CHECK(n == EXTRA, "%u buffers in the list", n);
	from.nifp->ni_bufs_head = 0;
	for (i = 0; i < EXTRA; i++) {
		struct netmap_slot *s = &tx->slot[tx->head];
		uint32_t old = s->buf_idx;

		fill(NETMAP_BUF(tx, list[i]), FRAME, i);
		s->buf_idx = list[i];
		s->len = FRAME;
		s->flags = NS_BUF_CHANGED;
		list[i] = old;
		tx->head = tx->cur = nm_ring_next(tx, tx->head);
	}
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	while (got < EXTRA) {
		CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "frames");
		take_frames(NETMAP_RXRING(to.nifp, 0), &got);
	}
	/* The slots' former buffers are now the list. */
	for (i = 0; i < EXTRA; i++) {
		*(uint32_t *)(void *)NETMAP_BUF(tx, list[i]) = from.nifp->ni_bufs_head;
		from.nifp->ni_bufs_head = list[i];
	}
	close_port(&from);
	close_port(&to);
	return 0;
}
