/* libpcap's API on netvale ports, call by call. Usage: pcap_api RECEIVER SENDER FOLDER */
#include <errno.h>
#include <pcap.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define CHECK(cond, ...)                                                              \
	do {                                                                          \
		if (!(cond)) {                                                        \
			fprintf(stderr, "%s:%d: not true: %s: ", __FILE__, __LINE__, #cond); \
			fprintf(stderr, __VA_ARGS__);                                 \
			fprintf(stderr, "\n");                                        \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

#define LEN 100

static char errbuf[PCAP_ERRBUF_SIZE];
static pcap_t *looping;

static pcap_t *
opened(const char *name, int ms)
{
	pcap_t *p = pcap_open_live(name, 65535, 1, ms, errbuf);

	CHECK(p, "%s: %s", name, errbuf);
	return p;
}

/* The next frame. A handle's timeout may pass before a daemon without a processor has moved the frame: the call is
 * then repeated, until the program's alarm. */
static const u_char *
next_frame(pcap_t *p, struct pcap_pkthdr **h)
{
	const u_char *data;
	int got;

	while ((got = pcap_next_ex(p, h, &data)) == 0)
		;
	CHECK(got == 1, "%s", pcap_geterr(p));
	return data;
}

/* A frame of LEN bytes with a number in it. */
static void
transmit(pcap_t *p, unsigned char number)
{
	unsigned char frame[LEN];

	memset(frame, number, sizeof(frame));
	memset(frame, 0xff, 6);
	frame[6] = 2;
	frame[12] = 0x88;
	frame[13] = number & 1 ? 0xb5 : 0xb6;
	CHECK(pcap_inject(p, frame, sizeof(frame)) == sizeof(frame), "inject: %s", pcap_geterr(p));
}

static void
before_activation(const char *name)
{
	struct pcap_pkthdr *h;
	struct bpf_program program;
	const u_char *data;
	pcap_t *p = pcap_create(name, errbuf);

	CHECK(p, "%s", errbuf);
	CHECK(pcap_next_ex(p, &h, &data) == PCAP_ERROR_NOT_ACTIVATED, "next_ex");
	CHECK(pcap_datalink(p) == PCAP_ERROR_NOT_ACTIVATED, "datalink");
	CHECK(pcap_compile(p, &program, "udp", 1, 0) == PCAP_ERROR, "compile");
	CHECK(pcap_set_snaplen(p, 60) == 0, "set_snaplen");
	CHECK(pcap_set_timeout(p, 10) == 0, "set_timeout");
	CHECK(pcap_set_promisc(p, 1) == 0, "set_promisc");
	CHECK(pcap_set_immediate_mode(p, 1) == 0, "set_immediate_mode");
	CHECK(pcap_set_buffer_size(p, 1 << 20) == 0, "set_buffer_size");
	CHECK(pcap_can_set_rfmon(p) == 0, "can_set_rfmon");
	CHECK(pcap_set_tstamp_precision(p, PCAP_TSTAMP_PRECISION_NANO) == 0, "precision");
	CHECK(pcap_activate(p) == 0, "activate: %s", pcap_geterr(p));
	CHECK(pcap_activate(p) == PCAP_ERROR_ACTIVATED, "twice");
	CHECK(pcap_set_snaplen(p, 60) == PCAP_ERROR_ACTIVATED, "too late");
	CHECK(pcap_snapshot(p) == 60, "snapshot");
	CHECK(pcap_get_tstamp_precision(p) == PCAP_TSTAMP_PRECISION_NANO, "precision");
	pcap_close(p);
}

static void
names(const char *name)
{
	pcap_if_t *all, *one;
	bpf_u_int32 net, mask;
	int ours = 0, loopback = 0;

	CHECK(pcap_findalldevs(&all, errbuf) == 0, "%s", errbuf);
	for (one = all; one; one = one->next) {
		ours |= strcmp(one->name, "nv:vale0") == 0;
		loopback |= strcmp(one->name, "lo") == 0;
	}
	pcap_freealldevs(all);
	CHECK(ours && loopback, "%d %d", ours, loopback);
	CHECK(pcap_lookupnet(name, &net, &mask, errbuf) == -1, "a port has no network");
	CHECK(!pcap_open_live("vale0:bad name", 100, 0, 10, errbuf) && errbuf[0], "a bad name");
	CHECK(!pcap_open_live("vale0:nobody/z", 100, 0, 10, errbuf) && errbuf[0], "a monitor of nothing");
}

static void
link_types(pcap_t *p)
{
	int *list, count = pcap_list_datalinks(p, &list);

	CHECK(count == 1 && list[0] == DLT_EN10MB, "%d", count);
	pcap_free_datalinks(list);
	CHECK(pcap_datalink(p) == DLT_EN10MB, "datalink");
	CHECK(pcap_set_datalink(p, DLT_EN10MB) == 0, "set_datalink");
	CHECK(pcap_set_datalink(p, DLT_RAW) == PCAP_ERROR, "set_datalink");
	CHECK(pcap_is_swapped(p) == 0, "is_swapped");
	CHECK(pcap_setdirection(p, PCAP_D_IN) == 0, "setdirection");
}

static void
one_by_one(pcap_t *rx, pcap_t *tx)
{
	struct pcap_pkthdr *h, head;
	struct timeval before, after;
	const u_char *data;
	int n;

	CHECK(pcap_next_ex(rx, &h, &data) == 0, "nothing was sent");
	gettimeofday(&before, NULL);
	for (n = 1; n < 4; n++)
		transmit(tx, n);
	for (n = 1; n < 3; n++) {
		data = next_frame(rx, &h);
		CHECK(h->len == LEN && h->caplen == LEN && data[LEN - 1] == n, "%u %u %d", h->len, h->caplen, data[LEN - 1]);
	}
	gettimeofday(&after, NULL);
	CHECK(!timercmp(&h->ts, &before, <) && !timercmp(&h->ts, &after, >), "time stamp");
	while (!(data = pcap_next(rx, &head)))
		;
	CHECK(data[LEN - 1] == 3 && head.len == LEN, "next");
	CHECK(!pcap_next(rx, &head), "no more");
	CHECK(pcap_sendpacket(tx, (const u_char *)"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\1\x88\xb5 and so on", 24) == 0, "sendpacket");
	next_frame(rx, &h);
	CHECK(h->len == 24, "its length");
}

static void
count(u_char *user, const struct pcap_pkthdr *h, const u_char *data)
{
	unsigned *counted = (unsigned *)user;

	CHECK(h->caplen == LEN && data[LEN - 1] == (unsigned char)*counted, "frame %u", *counted);
	(*counted)++;
}

static void
loops(pcap_t *rx, pcap_t *tx)
{
	unsigned counted = 0;
	int n;

	for (n = 0; n < 10; n++)
		transmit(tx, n);
	CHECK(pcap_loop(rx, 4, count, (u_char *)&counted) == 0 && counted == 4, "%u", counted);
	while ((n = pcap_dispatch(rx, 3, count, (u_char *)&counted)) == 0)
		;
	CHECK(n >= 1 && n <= 3 && counted == 4 + (unsigned)n, "%d, %u", n, counted);
	while (counted < 10)
		CHECK(pcap_dispatch(rx, -1, count, (u_char *)&counted) >= 0, "%u", counted);
	CHECK(pcap_dispatch(rx, -1, count, (u_char *)&counted) == 0, "the time is up");
}

static void
nonblocking(pcap_t *rx, pcap_t *tx)
{
	unsigned counted = 0;
	struct pcap_pkthdr *h;
	const u_char *data;
	struct pollfd p;

	CHECK(pcap_getnonblock(rx, errbuf) == 0, "blocking at first");
	CHECK(pcap_setnonblock(rx, 1, errbuf) == 0 && pcap_getnonblock(rx, errbuf) == 1, "non-blocking");
	CHECK(pcap_dispatch(rx, -1, count, (u_char *)&counted) == 0, "nothing was sent");
	CHECK(pcap_next_ex(rx, &h, &data) == 0, "nothing was sent");
	p.fd = pcap_get_selectable_fd(rx);
	p.events = POLLIN;
	CHECK(p.fd >= 0 && pcap_get_required_select_timeout(rx) == NULL, "a descriptor");
	CHECK(poll(&p, 1, 0) == 0, "readable too early");
	transmit(tx, 0);
	CHECK(poll(&p, 1, 5000) == 1, "readable");
	transmit(tx, 1);
	while (counted < 2) {
		CHECK(poll(&p, 1, 5000) == 1, "readable");
		CHECK(pcap_dispatch(rx, 1, count, (u_char *)&counted) >= 0, "%s", pcap_geterr(rx));
	}
	CHECK(pcap_dispatch(rx, -1, count, (u_char *)&counted) == 0, "no more");
	CHECK(poll(&p, 1, 0) == 0, "readable without frames");
	CHECK(pcap_setnonblock(rx, 0, errbuf) == 0, "blocking again");
}

static void
on_alarm(int signal)
{
	(void)signal;
	pcap_breakloop(looping);
}

static void *
break_in_a_while(void *arg)
{
	usleep(50000);
	pcap_breakloop(arg);
	return NULL;
}

/* Another thread ends a loop that waits for frames without a limit. */
static void
broken_off_by_a_thread(const char *name)
{
	pcap_t *rx = opened(name, 0);
	unsigned counted = 0;
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, break_in_a_while, rx) == 0, "a thread");
	CHECK(pcap_loop(rx, -1, count, (u_char *)&counted) == PCAP_ERROR_BREAK, "broken off");
	pthread_join(thread, NULL);
	/* The handle continues to work; a break before the loop counts, too. */
	pcap_breakloop(rx);
	CHECK(pcap_loop(rx, -1, count, (u_char *)&counted) == PCAP_ERROR_BREAK, "broken off before");
	pcap_close(rx);
}

static void
broken_off(pcap_t *rx)
{
	struct itimerval soon = { { 0, 0 }, { 0, 50000 } };
	struct sigaction action = { 0 };
	unsigned counted = 0;

	looping = rx;
	action.sa_handler = on_alarm;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	CHECK(pcap_loop(rx, -1, count, (u_char *)&counted) == PCAP_ERROR_BREAK, "broken off");
	signal(SIGALRM, SIG_DFL);
	alarm(30);
}

static void
filtered(pcap_t *rx, pcap_t *tx)
{
	struct bpf_program program;
	struct pcap_pkthdr *h;
	struct pcap_stat before, stat;
	const u_char *data;
	int n;

	CHECK(pcap_compile(rx, &program, "no such filter", 1, 0) == -1 && pcap_geterr(rx)[0], "a bad filter");
	CHECK(pcap_compile(rx, &program, "ether proto 0x88b5", 1, PCAP_NETMASK_UNKNOWN) == 0, "%s", pcap_geterr(rx));
	CHECK(pcap_setfilter(rx, &program) == 0, "%s", pcap_geterr(rx));
	pcap_freecode(&program);
	CHECK(pcap_stats(rx, &before) == 0, "stats");
	for (n = 0; n < 6; n++)
		transmit(tx, n);
	for (n = 1; n < 6; n += 2)
		CHECK(next_frame(rx, &h)[LEN - 1] == n, "%d", n);
	CHECK(pcap_next_ex(rx, &h, &data) == 0, "the others");
	CHECK(pcap_stats(rx, &stat) == 0 && stat.ps_recv - before.ps_recv == 3, "%u", stat.ps_recv - before.ps_recv);
	CHECK(pcap_compile(rx, &program, "", 1, 0) == 0 && pcap_setfilter(rx, &program) == 0, "everything again");
	pcap_freecode(&program);
}

/* Sets a filter. Returns the result of pcap_setfilter. */
static int
set(pcap_t *p, const char *filter)
{
	struct bpf_program program;
	int done;

	CHECK(pcap_compile(p, &program, filter, 1, PCAP_NETMASK_UNKNOWN) == 0, "%s: %s", filter, pcap_geterr(p));
	done = pcap_setfilter(p, &program);
	pcap_freecode(&program);
	return done;
}

/* A port's frames are inbound, those of a monitor of its tx rings outbound; a monitor of both cannot distinguish them. */
static void
directed(pcap_t *rx, pcap_t *tx, const char *sender)
{
	static const char *const ways[] = { "inbound", "outbound", "inbound and ether proto 0x88b5" };
	struct pcap_pkthdr *h;
	const u_char *data;
	char name[512];
	pcap_t *monitor;
	int n;

	snprintf(name, sizeof(name), "%s/t", sender);
	monitor = opened(name, 50);
	for (n = 0; n < 3; n++) {
		CHECK(set(rx, ways[n]) == 0 && set(monitor, ways[n]) == 0, "%s: %s", ways[n], pcap_geterr(rx));
		transmit(tx, 1);
		next_frame(n == 1 ? monitor : rx, &h);
		CHECK(pcap_next_ex(n == 1 ? rx : monitor, &h, &data) == 0, "%s: by the other", ways[n]);
	}
	CHECK(pcap_setdirection(rx, PCAP_D_IN) == 0 && pcap_setdirection(rx, PCAP_D_OUT) == PCAP_ERROR, "a port");
	CHECK(pcap_setdirection(monitor, PCAP_D_OUT) == 0 && pcap_setdirection(monitor, PCAP_D_IN) == PCAP_ERROR, "/t");
	CHECK(set(rx, "ifindex 1") == PCAP_ERROR && strstr(pcap_geterr(rx), "kernel"), "%s", pcap_geterr(rx));
	CHECK(set(rx, "") == 0, "everything again");
	pcap_close(monitor);

	snprintf(name, sizeof(name), "%s/z", sender);
	monitor = opened(name, 50);
	CHECK(set(monitor, "inbound") == PCAP_ERROR && strstr(pcap_geterr(monitor), "/r"), "%s", pcap_geterr(monitor));
	CHECK(pcap_setdirection(monitor, PCAP_D_IN) == PCAP_ERROR, "/z");
	CHECK(pcap_setdirection(monitor, PCAP_D_INOUT) == 0, "both");
	pcap_close(monitor);
}

static void
overrun(pcap_t *rx, pcap_t *tx)
{
	struct pcap_pkthdr *h;
	struct pcap_stat stat;
	const u_char *data;
	unsigned got = 0, sent, dropped = 0;

	for (sent = 0; sent < 2000; sent++)
		transmit(tx, 0);
	while (got + dropped < sent) {
		while (pcap_next_ex(rx, &h, &data) == 1)
			got++;
		CHECK(pcap_stats(rx, &stat) == 0, "stats");
		dropped = stat.ps_drop;
	}
	CHECK(got > 0 && got + dropped == sent, "%u received, %u dropped", got, dropped);
}

static void
dumped(pcap_t *rx, pcap_t *tx, const char *folder)
{
	struct pcap_pkthdr *h;
	pcap_dumper_t *dumper;
	const u_char *data;
	pcap_t *file;
	char path[512];
	int n;

	snprintf(path, sizeof(path), "%s/dump.pcap", folder);
	for (n = 0; n < 5; n++)
		transmit(tx, n);
	dumper = pcap_dump_open(rx, path);
	CHECK(dumper, "%s", pcap_geterr(rx));
	CHECK(pcap_loop(rx, 5, pcap_dump, (u_char *)dumper) == 0, "dump");
	pcap_dump_close(dumper);
	file = pcap_open_offline(path, errbuf);
	CHECK(file, "%s", errbuf);
	CHECK(pcap_datalink(file) == DLT_EN10MB && pcap_file(file), "the system's handle");
	for (n = 0; n < 5; n++)
		CHECK(pcap_next_ex(file, &h, &data) == 1 && h->len == LEN && data[LEN - 1] == n, "%d", n);
	CHECK(pcap_next_ex(file, &h, &data) == PCAP_ERROR_BREAK, "the file's end");
	pcap_close(file);
}

static void
cut(const char *name, pcap_t *tx)
{
	struct pcap_pkthdr *h;
	pcap_t *p = pcap_open_live(name, 20, 1, 2000, errbuf);

	CHECK(p, "%s", errbuf);
	transmit(tx, 9);
	next_frame(p, &h);
	CHECK(h->caplen == 20 && h->len == LEN, "%u %u", h->caplen, h->len);
	pcap_close(p);
}

/* The next frame's number. */
static int
number_of_next(pcap_t *p)
{
	struct pcap_pkthdr *h;

	return next_frame(p, &h)[20];
}

/* A program that opens its interface again, and closes the first handle or another one: each receives frames, and
 * sends. */
static void
again(const char *name, pcap_t *tx)
{
	pcap_t *p[3] = { opened(name, 2000), opened(name, 2000), NULL };
	int i;

	CHECK(pcap_setnonblock(tx, 1, errbuf) == 0, "%s", errbuf);
	while (pcap_next(tx, &(struct pcap_pkthdr){ 0 }))
		;
	CHECK(pcap_setnonblock(tx, 0, errbuf) == 0, "%s", errbuf);
	transmit(tx, 1);
	CHECK(number_of_next(p[0]) == 1 && number_of_next(p[1]) == 1, "both");
	for (i = 0; i < 2; i++) {
		transmit(p[i], 10 + i);
		CHECK(number_of_next(tx) == 10 + i, "both send");
	}
	pcap_close(p[0]);
	p[2] = opened(name, 2000);
	for (i = 0; i < 100; i++) {
		transmit(tx, i);
		CHECK(number_of_next(p[1]) == i && number_of_next(p[2]) == i, "frame %d", i);
		transmit(p[1 + i % 2], i);
		CHECK(number_of_next(tx) == i, "frame %d", i);
	}
	pcap_close(p[1]);
	transmit(tx, 3);
	CHECK(number_of_next(p[2]) == 3, "the last one");
	pcap_close(p[2]);
	p[0] = opened(name, 2000);
	transmit(tx, 4);
	CHECK(number_of_next(p[0]) == 4, "and a first one again");
	pcap_close(p[0]);
}

int
main(int argc, char **argv)
{
	pcap_t *rx, *tx;

	CHECK(argc == 4, "two ports and a folder");
	alarm(30);
	before_activation(argv[1]);
	rx = opened(argv[1], 50);
	tx = opened(argv[2], 50);
	names(argv[1]);
	link_types(rx);
	one_by_one(rx, tx);
	loops(rx, tx);
	nonblocking(rx, tx);
	broken_off(rx);
	filtered(rx, tx);
	directed(rx, tx, argv[2]);
	dumped(rx, tx, argv[3]);
	overrun(rx, tx);
	pcap_close(rx);
	broken_off_by_a_thread(argv[1]);
	cut(argv[1], tx);
	again(argv[1], tx);
	pcap_close(tx);
	return 0;
}
