/* Four rings, a thread each, every thread with its own descriptor over one mapping. Usage: thread_per_ring FROM TO */
#include "common.h"
#include <libnetmap.h>
#include <pthread.h>

#define RINGS 4u
#define COUNT 4000u

static struct nmport_d *main_port;
static volatile uint32_t received;

static void *
send_on_ring(void *arg)
{
	uint16_t ring = (uint16_t)(uintptr_t)arg;
	struct nmport_d *d = nmport_clone(main_port);
	uint32_t sent = 0;

	CHECK(d != NULL, "clone");
	d->reg.nr_mode = NR_REG_ONE_NIC;
	d->reg.nr_ringid = ring;
	CHECK(nmport_open_desc(d) == 0, "ring %u", ring);
	CHECK(d->mem == main_port->mem, "one mapping for all");
	CHECK(d->first_tx_ring == ring && d->last_tx_ring == ring, "bound to ring %u", ring);
	while (sent < COUNT) {
		struct netmap_ring *r = NETMAP_TXRING(d->nifp, ring);

		/* All threads together never exceed the receiver's ring. */
		if (sent * RINGS < received + 400)
			put_frames(r, &sent, sent + 16 < COUNT ? sent + 16 : COUNT);
		CHECK(poll_for(d->fd, POLLOUT, 5000) & POLLOUT, "no room on ring %u", ring);
	}
	nmport_close(d);
	return NULL;
}

int
main(int argc, char **argv)
{
	struct nmport_d *rx;
	pthread_t t[RINGS];
	char name[128];
	uint32_t i;

	CHECK(argc == 3, "two ports");
	alarm(30);
	snprintf(name, sizeof(name), "%s@conf:slots=2048", argv[2]);
	rx = nmport_open(name);
	snprintf(name, sizeof(name), "%s/R@conf:rings=%u", argv[1], RINGS);
	main_port = nmport_open(name);
	CHECK(rx && main_port, "ports");
	CHECK(main_port->reg.nr_tx_rings == RINGS, "%u rings", main_port->reg.nr_tx_rings);
	CHECK(main_port->first_tx_ring > main_port->last_tx_ring, "no tx ring bound here");
	main_port->reg.nr_flags &= ~(uint64_t)NR_RX_RINGS_ONLY;
	main_port->reg.nr_flags |= NR_TX_RINGS_ONLY;
	for (i = 0; i < RINGS; i++)
		CHECK(pthread_create(&t[i], NULL, send_on_ring, (void *)(uintptr_t)i) == 0, "thread");
	while (received < RINGS * COUNT) {
		struct netmap_ring *r = NETMAP_RXRING(rx->nifp, 0);

		CHECK(poll_for(rx->fd, POLLIN, 5000) & POLLIN, "%u frames came", received);
		received += nm_ring_space(r);
		r->head = r->cur = r->tail;
	}
	for (i = 0; i < RINGS; i++)
		pthread_join(t[i], NULL);
	nmport_close(main_port);
	nmport_close(rx);
	return 0;
}
