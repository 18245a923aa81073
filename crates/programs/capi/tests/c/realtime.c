/* Threads at a real-time priority use all CPUs, except the time that the kernel reserves: counts frames that pass between two ports meanwhile.
 * Usage: realtime PORT PORT
 * Runs for two seconds at most, prints the number of frames, and ends with 77 and the reason where it may not. */
#define _GNU_SOURCE
#include "common.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define PRIORITY 5
#define SPIN_MS 1500

static volatile int over;

static long
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int
real_time(void)
{
	struct sched_param p = {.sched_priority = PRIORITY};

	return sched_setscheduler(0, SCHED_FIFO, &p);
}

/* Keeps one CPU busy. */
static void *
spin(void *cpu)
{
	long end = now_ms() + SPIN_MS;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((int)(intptr_t)cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	if (real_time() == 0)
		while (!over && now_ms() < end)
			;
	return NULL;
}

int
main(int argc, char **argv)
{
	struct port from, to;
	struct netmap_ring *tx, *rx;
	uint32_t seq = 0, got = 0;
	pthread_t threads[256];
	int i, own = -1, count = 0;
	cpu_set_t cpus;
	long end;

	CHECK(argc == 3, "usage");
	from = open_port(argv[1]);
	to = open_port(argv[2]);
	tx = NETMAP_TXRING(from.nifp, 0);
	rx = NETMAP_RXRING(to.nifp, 0);
	CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0, "CPUs");
	if (real_time() < 0) {
		fprintf(stderr, "skipped: SCHED_FIFO is not permitted here (%s)\n", strerror(errno));
		return 77;
	}
	/* This thread also has a CPU to itself: threads of one priority do not preempt each other. */
	for (i = 0; i < CPU_SETSIZE && count < 256; i++) {
		if (!CPU_ISSET(i, &cpus))
			continue;
		if (own < 0)
			own = i;
		else
			CHECK(pthread_create(&threads[count++], NULL, spin, (void *)(intptr_t)i) == 0, "thread");
	}
	CPU_ZERO(&cpus);
	CPU_SET(own, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	end = now_ms() + SPIN_MS;
	while (now_ms() < end) {
		uint32_t head = rx->head;

		put_frames(tx, &seq, seq + tx->num_slots);
		CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0 && ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "sync");
		for (; head != rx->tail; head = nm_ring_next(rx, head))
			got++;
		rx->head = rx->cur = head;
	}
	over = 1;
	for (i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	printf("%u\n", got);
	close_port(&from);
	close_port(&to);
	return 0;
}
