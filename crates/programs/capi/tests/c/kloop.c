/* Frames through a port whose rings are synced only by a kloop and the CSB. Usage: kloop FROM TO */
#include "common.h"
#include <sched.h>
#include <pthread.h>
#include <sys/eventfd.h>

#define COUNT 20000u

static struct port from;
static struct nmreq_opt_sync_kloop_eventfds *ev;
static int loop_result, switched;

#define AWAY 4096
static char away[AWAY][FRAME];

static void *
kloop(void *arg)
{
	struct nmreq_sync_kloop_start start = { .sleep_us = 100 };
	struct nmreq_header h;

	(void)arg;
	header(&h, "", NETMAP_REQ_SYNC_KLOOP_START, &start);
	h.nr_options = (uintptr_t)ev;
	loop_result = ioctl(from.fd, NIOCCTRL, &h);
	return NULL;
}

static void
send_through_csb(struct port *to, struct nm_csb_atok *atok, struct nm_csb_ktoa *ktoa)
{
	struct netmap_ring *r = NETMAP_TXRING(from.nifp, 0), *rx = NETMAP_RXRING(to->nifp, 0);
	uint32_t head = 0, hwtail, hwcur, sent = 0, got = 0;

	while (got < COUNT) {
		nm_sync_kloop_appl_read(ktoa, &hwtail, &hwcur);
		while (head != hwtail && sent < COUNT && sent < got + window_of(rx)) {
			struct netmap_slot *s = &r->slot[head];
			char *frame = NETMAP_BUF(r, s->buf_idx);

			s->flags = 0;
			/* On a switch, the loop finds some of the frames elsewhere in the program's memory. */
			if (switched && (head & 1)) {
				frame = away[head % AWAY];
				s->flags = NS_INDIRECT;
				s->ptr = (uintptr_t)frame;
			}
			fill(frame, FRAME, sent++);
			s->len = FRAME;
			head = nm_ring_next(r, head);
		}
		nm_sync_kloop_appl_write(atok, head, head);
		nm_stld_barrier();
		if (ev && __atomic_load_n(&ktoa->kern_need_kick, __ATOMIC_RELAXED))
			CHECK(eventfd_write(ev->eventfds[0].ioeventfd, 1) == 0, "kick");
		if (sent == got) {
			/* All frames have arrived; the loop has yet to report their slots as free. */
			sched_yield();
			continue;
		}
		CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "%u of %u frames came", got, COUNT);
		take_frames(rx, &got);
	}
}

int
main(int argc, char **argv)
{
	struct nmreq_register reg;
	struct nmreq_opt_csb csb;
	struct nmreq_header h;
	struct port to;
	pthread_t t;
	char *entries;
	int round;

	CHECK(argc == 3, "two ports");
	alarm(60);
	switched = strncmp(argv[1], NM_BDG_NAME, strlen(NM_BDG_NAME)) == 0;
	to = open_port(argv[2]);
	for (round = 0; round < 2; round++) {
		CHECK(posix_memalign((void **)&entries, 64, 4 * 64) == 0, "memory");
		memset(&csb, 0, sizeof(csb));
		csb.nro_opt.nro_reqtype = NETMAP_REQ_OPT_CSB;
		csb.csb_atok = (uintptr_t)entries;
		csb.csb_ktoa = (uintptr_t)entries + 128;
		memset(&reg, 0, sizeof(reg));
		reg.nr_mode = NR_REG_ALL_NIC;
		reg.nr_flags = NR_EXCLUSIVE;
		memset(&from, 0, sizeof(from));
		from.fd = device();
		header(&h, argv[1], NETMAP_REQ_REGISTER, &reg);
		h.nr_options = (uintptr_t)&csb;
		CHECK(ioctl(from.fd, NIOCCTRL, &h) == 0, "register in CSB mode");
		from.reg = reg;
		from.mem = mmap(NULL, reg.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, from.fd, 0);
		CHECK(from.mem != MAP_FAILED, "mmap");
		from.nifp = NETMAP_IF(from.mem, reg.nr_offset);
		ev = NULL;
		if (round) {
			size_t size = sizeof(*ev) + 2 * sizeof(ev->eventfds[0]);
			int i;

			ev = calloc(1, size);
			ev->nro_opt.nro_reqtype = NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS;
			ev->nro_opt.nro_size = size;
			for (i = 0; i < 2; i++) {
				ev->eventfds[i].ioeventfd = eventfd(0, 0);
				ev->eventfds[i].irqfd = eventfd(0, 0);
			}
		}
		CHECK(pthread_create(&t, NULL, kloop, NULL) == 0, "thread");
		send_through_csb(&to, (void *)entries, (void *)(entries + 128));
		CHECK(request(from.fd, "", NETMAP_REQ_SYNC_KLOOP_STOP, NULL) == 0, "stop");
		pthread_join(t, NULL);
		CHECK(loop_result == 0, "the loop's end");
		CHECK(!ev || ev->nro_opt.nro_status == 0, "the option's status");
		close_port(&from);
	}
	return 0;
}
