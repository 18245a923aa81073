/* Invalid indices: the ring is reset, and only poll reports it. Usage: bad_ring FROM TO */
#include "common.h"

int
main(int argc, char **argv)
{
	struct netmap_ring *tx, *rx;
	struct port from, to;
	uint32_t n, tail;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	tx = NETMAP_TXRING(from.nifp, 0);
	rx = NETMAP_RXRING(to.nifp, 0);
	n = tx->num_slots;
	CHECK(tx->head == 0 && tx->cur == 0 && tx->tail == n - 1, "a fresh tx ring");
	CHECK(rx->head == 0 && rx->cur == 0 && rx->tail == 0, "a fresh rx ring");
	exchange(&from, &to, 100);

	/* The switch returns the last slots a moment after their frames have arrived. */
	while (tx->tail != 99)
		CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	tail = tx->tail;
	tx->head = n + 5;
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "the ioctl does not say");
	CHECK(tx->head == 100 && tx->cur == 100, "put back: head %u cur %u", tx->head, tx->cur);
	tx->cur = n;
	CHECK(poll_for(from.fd, POLLOUT, 100) & POLLERR, "poll does");
	CHECK(tx->head == 100 && tx->cur == 100, "put back again");
	tx->head = 110;
	tx->cur = 105;
	CHECK(poll_for(from.fd, POLLOUT, 100) & POLLERR, "cur behind head");
	rx->head = rx->cur = (rx->tail + 3) % n;
	CHECK(poll_for(to.fd, POLLIN, 100) & POLLERR, "over the tail");
	CHECK(poll_for(from.fd, POLLOUT, 100) == POLLOUT, "all is well again");
	tx->tail = 3;
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(tx->tail == tail, "a tail of the program's own is overwritten: %u, not %u", tx->tail, tail);
	/* Frames still pass. */
	tx->slot[tx->head].buf_idx = 0xffffffff;
	tx->slot[tx->head].len = FRAME;
	tx->head = tx->cur = nm_ring_next(tx, tx->head);
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "a buffer that is none");
	{
		uint32_t sent = 7, got = 7;

		put_frames(tx, &sent, 8);
		CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
		while (got < 8) {
			CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "the frame behind it");
			if (rx->slot[rx->head].len == FRAME && seq_of(NETMAP_BUF(rx, rx->slot[rx->head].buf_idx)) == 7)
				got = 8;
			rx->head = rx->cur = nm_ring_next(rx, rx->head);
		}
	}
	return 0;
}
