/* Frames of several slots. Usage: morefrag FROM TO */
#include "common.h"

int
main(int argc, char **argv)
{
	struct netmap_ring *tx, *rx;
	struct port from, to;
	uint32_t k, n, total, slots;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	tx = NETMAP_TXRING(from.nifp, 0);
	rx = NETMAP_RXRING(to.nifp, 0);
	for (n = 1; n <= 20; n++) {
		for (k = 0; k < n; k++) {
			struct netmap_slot *s = &tx->slot[tx->head];

			memset(NETMAP_BUF(tx, s->buf_idx), k == 0 ? 0xff : (int)k, 1000);
			s->len = 1000;
			s->flags = k + 1 < n ? NS_MOREFRAG : 0;
			tx->head = tx->cur = nm_ring_next(tx, tx->head);
		}
		CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
		CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "a frame of %u slots", n);
		slots = (rx->tail + rx->num_slots - rx->head) % rx->num_slots;
		for (total = 0;;) {
			struct netmap_slot *s = &rx->slot[rx->head];

			CHECK(rx->head != rx->tail, "the frame ends early, after %u bytes", total);
			CHECK(NETMAP_BUF(rx, s->buf_idx)[s->len - 1] == (char)(n == 1 ? 0xff : ((total + s->len - 1) / 1000
			      ? (total + s->len - 1) / 1000 : 0xff)), "content at %u of %u slots", total, n);
			CHECK(NS_RFRAGS(s) == slots, "%u slots, of %u", NS_RFRAGS(s), slots);
			total += s->len;
			rx->head = rx->cur = nm_ring_next(rx, rx->head);
			if (!(s->flags & NS_MOREFRAG))
				break;
		}
		CHECK(total == 1000 * n, "%u bytes of %u", total, 1000 * n);
		CHECK(rx->head == rx->tail, "one frame only");
	}
	return 0;
}
