/*
 * A pipe's sender has as much room as the receiver has released, slot by slot; its own sync delivers everything that it may fill, and a frame
 * of several slots once it is complete. Both ways. Usage: pipe_room NAME
 */
#include "common.h"
#include <pthread.h>

/* Returns `n` received slots. */
static void
release(struct netmap_ring *r, uint32_t n)
{
	uint32_t head = r->head;

	CHECK(nm_ring_space(r) >= n, "%u of %u", nm_ring_space(r), n);
	for (; n > 0; n--)
		head = nm_ring_next(r, head);
	r->head = r->cur = head;
}

/* Fills one slot. */
static void
put(struct netmap_ring *r, uint16_t flags)
{
	struct netmap_slot *s = &r->slot[r->head];

	fill(NETMAP_BUF(r, s->buf_idx), FRAME, 0);
	s->len = FRAME;
	s->flags = flags;
	r->head = r->cur = nm_ring_next(r, r->head);
}

static void
sync_tx(struct port *p, uint32_t room)
{
	struct netmap_ring *tx = NETMAP_TXRING(p->nifp, 0);

	CHECK(ioctl(p->fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(nm_ring_space(tx) == room, "%u slots of room and not %u", nm_ring_space(tx), room);
}

static void
sync_rx(struct port *p, uint32_t there)
{
	struct netmap_ring *rx = NETMAP_RXRING(p->nifp, 0);

	CHECK(ioctl(p->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	CHECK(nm_ring_space(rx) == there, "%u slots are there and not %u", nm_ring_space(rx), there);
}

/* The ring is filled, read in parts, and filled up again. */
static void
partial_reads(struct port *from, struct port *to)
{
	struct netmap_ring *tx = NETMAP_TXRING(from->nifp, 0), *rx = NETMAP_RXRING(to->nifp, 0);
	uint32_t n = tx->num_slots, sent = 0, got = 0, k;

	CHECK(rx->num_slots == n, "%u slots and %u", n, rx->num_slots);
	CHECK(nm_ring_space(tx) == n - 1, "room at first: %u", nm_ring_space(tx));
	put_frames(tx, &sent, n - 1);
	sync_tx(from, 0);
	CHECK(nm_tx_pending(tx), "what is unread is pending");
	CHECK((poll_for(from->fd, POLLOUT, 0) & POLLOUT) == 0, "no room, and yet ready");
	for (k = 1; k < n / 4; k *= 3) {
		sync_rx(to, n - 1);
		release(rx, k);
		sync_tx(from, 0);
		sync_rx(to, n - 1 - k);
		CHECK(nm_ring_space(tx) == 0, "room without a sync");
		sync_tx(from, k);
		CHECK(poll_for(from->fd, POLLOUT, 0) & POLLOUT, "room, and not ready");
		got += k;
		put_frames(tx, &sent, sent + k);
		sync_tx(from, 0);
	}
	/* New frames follow the earlier ones, and a sync of the sender has moved them all. */
	sync_rx(to, n - 1);
	take_frames(rx, &got);
	CHECK(got == sent, "%u of %u", got, sent);
	sync_rx(to, 0);
	sync_tx(from, n - 1);
	CHECK(!nm_tx_pending(tx), "nothing is pending");
}

/* A frame of several slots. */
static void
whole_frames(struct port *from, struct port *to)
{
	struct netmap_ring *tx = NETMAP_TXRING(from->nifp, 0), *rx = NETMAP_RXRING(to->nifp, 0);
	uint32_t n = tx->num_slots;

	put(tx, 0);
	put(tx, NS_MOREFRAG);
	sync_tx(from, n - 3);
	sync_rx(to, 1);
	put(tx, NS_MOREFRAG);
	sync_tx(from, n - 4);
	sync_rx(to, 1);
	put(tx, 0);
	sync_tx(from, n - 5);
	sync_rx(to, 4);
	CHECK((rx->slot[nm_ring_next(rx, rx->head)].flags & NS_MOREFRAG) != 0, "a piece");
	release(rx, 4);
	sync_rx(to, 0);
	sync_tx(from, n - 1);
}

struct late {
	struct port *to;
	uint32_t k;
};

static void *
release_late(void *arg)
{
	struct late *l = arg;
	struct netmap_ring *rx = NETMAP_RXRING(l->to->nifp, 0);
	struct timespec nap = { 0, 20000000 };

	/* The other thread mostly falls asleep; the test is valid if it does not. */
	nanosleep(&nap, NULL);
	release(rx, l->k);
	CHECK(ioctl(l->to->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	return NULL;
}

/* A sender that sleeps for room wakes when the receiver returns slots, not only when it has read all. */
static void
woken(struct port *from, struct port *to)
{
	struct netmap_ring *tx = NETMAP_TXRING(from->nifp, 0), *rx = NETMAP_RXRING(to->nifp, 0);
	uint32_t n = tx->num_slots, sent = 0;
	struct late late = { to, 3 };
	pthread_t t;

	put_frames(tx, &sent, n - 1);
	sync_tx(from, 0);
	sync_rx(to, n - 1);
	CHECK(pthread_create(&t, NULL, release_late, &late) == 0, "a thread");
	CHECK(poll_for(from->fd, POLLOUT, 5000) & POLLOUT, "the sender sleeps on");
	CHECK(pthread_join(t, NULL) == 0, "join");
	sync_tx(from, 3);
	release(rx, n - 4);
	sync_rx(to, 0);
	sync_tx(from, n - 1);
}

int
main(int argc, char **argv)
{
	struct port ends[2];
	char name[128];
	int i;

	CHECK(argc == 2, "a name");
	alarm(30);
	for (i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%s%c1", argv[1], i == 0 ? '{' : '}');
		ends[i] = open_port(name);
	}
	for (i = 0; i < 4; i++) {
		struct port *from = &ends[i & 1], *to = &ends[(i & 1) ^ 1];

		partial_reads(from, to);
		whole_frames(from, to);
		woken(from, to);
	}
	close_port(&ends[0]);
	close_port(&ends[1]);
	return 0;
}
