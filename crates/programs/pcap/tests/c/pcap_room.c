/*
 * A full port: libpcap's errors, blocking and not, and poll, select and epoll that wait for room on the descriptor to select on.
 * Usage: pcap_room FROM TO, the ends of a pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <pcap.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define CHECK(cond, ...)                                                              \
	do {                                                                          \
		if (!(cond)) {                                                        \
			fprintf(stderr, "%s:%d: not true: %s (errno %d): ", __FILE__, __LINE__, #cond, errno); \
			fprintf(stderr, "" __VA_ARGS__);                              \
			fprintf(stderr, "\n");                                        \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

#define LEN 60

static char errbuf[PCAP_ERRBUF_SIZE];
static pcap_t *from, *to;
static unsigned sent, got;

static pcap_t *
opened(const char *name)
{
	pcap_t *p = pcap_open_live(name, 65535, 1, 1000, errbuf);

	CHECK(p, "%s: %s", name, errbuf);
	return p;
}

static int
transmit(void)
{
	unsigned char frame[LEN];
	int n;

	memset(frame, 0, sizeof(frame));
	memset(frame, 0xff, 6);
	memcpy(frame + 14, &sent, sizeof(sent));
	errno = 0;
	n = pcap_inject(from, frame, sizeof(frame));
	CHECK(n == LEN || n == -1, "%d", n);
	sent += n == LEN;
	return n;
}

/* As many as there is room for. */
static void
fill_up(void)
{
	unsigned before = sent;

	while (transmit() == LEN)
		CHECK(sent - before < 100000, "never full");
	CHECK(errno == EAGAIN, "inject");
	CHECK(strcmp(pcap_geterr(from), "send: Resource temporarily unavailable") == 0, "%s", pcap_geterr(from));
	errno = 0;
	CHECK(pcap_sendpacket(from, (const u_char *)"0123456789abcdef", 16) == -1 && errno == EAGAIN, "sendpacket");
}

/* Reads a frame, which must have the next number. Returns the result of pcap_next_ex. */
static int
read_one(void)
{
	struct pcap_pkthdr *h;
	const u_char *data;
	unsigned number;
	int n = pcap_next_ex(to, &h, &data);

	if (n == 1) {
		memcpy(&number, data + 14, sizeof(number));
		CHECK(h->len == LEN && number == got, "%u in the place of %u", number, got);
		got++;
	}
	return n;
}

/* Reads the available frames. */
static void
drain(void)
{
	int n;

	while (got < sent)
		CHECK(read_one() == 1, "frame %u of %u", got, sent);
	/* The next read returns the last slots, and may find a frame that another thread has just sent. */
	CHECK(pcap_setnonblock(to, 1, errbuf) == 0, "not blocking");
	while ((n = read_one()) == 1)
		;
	CHECK(n == 0, "no more: %d", n);
	CHECK(pcap_setnonblock(to, 0, errbuf) == 0, "blocking");
}

static void *
drain_late(void *arg)
{
	struct timespec nap = { 0, 20000000 };

	(void)arg;
	/* The sender mostly falls asleep; the test is valid if it does not. */
	nanosleep(&nap, NULL);
	drain();
	return NULL;
}

static pthread_t
drained_later(void)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, drain_late, NULL) == 0, "a thread");
	return t;
}

static int
polled(int ms)
{
	struct pollfd p = { .fd = pcap_get_selectable_fd(from), .events = POLLOUT };
	int n = poll(&p, 1, ms);

	CHECK(n == (p.revents != 0) && (p.revents & ~POLLOUT) == 0, "%d %x", n, p.revents);
	return n;
}

static int
selected(int ms)
{
	struct timeval limit = { ms / 1000, (ms % 1000) * 1000 };
	int fd = pcap_get_selectable_fd(from), n;
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	n = select(fd + 1, NULL, &set, NULL, &limit);
	CHECK(n >= 0 && (FD_ISSET(fd, &set) != 0) == n, "%d", n);
	return n;
}

static int set, set_fd;

static void
in_set(int op, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.u64 = 42 };

	CHECK(epoll_ctl(set, op, set_fd, &e) == 0, "epoll_ctl %d", op);
}

static int
epolled(int ms)
{
	struct epoll_event e = { 0 };
	int n;

	n = epoll_wait(set, &e, 1, ms);
	CHECK(n == 0 || (n == 1 && e.events == EPOLLOUT && e.data.u64 == 42), "%d %x", n, e.events);
	return n;
}

/* The descriptor is writable exactly while there is room, and new room wakes. */
static void
shows_room(int (*waited)(int))
{
	pthread_t t;

	CHECK(waited(0) == 1, "empty, and no room");
	CHECK(waited(5000) == 1, "empty, and no room");
	fill_up();
	CHECK(waited(0) == 0 && waited(20) == 0, "full, and room");
	t = drained_later();
	CHECK(waited(5000) == 1, "sleeps on");
	CHECK(transmit() == LEN, "room that is none");
	CHECK(pthread_join(t, NULL) == 0, "join");
	drain();
	CHECK(waited(0) == 1, "read, and no room");
}

static void
in_a_set(void)
{
	struct epoll_event e = { .events = EPOLLIN };

	set = epoll_create1(0);
	set_fd = pcap_get_selectable_fd(from);
	in_set(EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, set_fd, &e) == -1 && errno == EEXIST, "twice");
	shows_room(epolled);
	in_set(EPOLL_CTL_MOD, EPOLLIN);
	CHECK(epolled(0) == 0, "not asked for");
	in_set(EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT | EPOLLET);
	CHECK(epolled(0) == 1 && epolled(0) == 0, "told once");
	fill_up();
	drain();
	CHECK(epolled(0) == 1 && epolled(0) == 0, "told again, once");
	in_set(EPOLL_CTL_DEL, 0);
	CHECK(epolled(0) == 0, "taken out");
	close(set);
}

static void
errors(void)
{
	static unsigned char frame[80000];

	errno = 0;
	CHECK(pcap_inject(from, frame, sizeof(frame)) == -1 && errno == EMSGSIZE, "too long");
	CHECK(strcmp(pcap_geterr(from), "send: Message too long") == 0, "%s", pcap_geterr(from));
	errno = 0;
	CHECK(pcap_inject(from, frame, 0) == -1 && errno == EINVAL, "nothing");
}

int
main(int argc, char **argv)
{
	pthread_t t;
	int fd;

	CHECK(argc == 3, "two ends");
	alarm(60);
	from = opened(argv[1]);
	to = opened(argv[2]);
	errors();
	CHECK(pcap_setnonblock(from, 1, errbuf) == 0, "non-blocking");
	fill_up();
	drain();
	shows_room(polled);
	shows_room(selected);
	in_a_set();
	/* The program's own way of not waiting. */
	CHECK(pcap_setnonblock(from, 0, errbuf) == 0, "blocking");
	fd = pcap_get_selectable_fd(from);
	CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0, "fcntl");
	fill_up();
	CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0, "fcntl");
	/* A blocking sender waits for room. */
	t = drained_later();
	CHECK(transmit() == LEN, "not waited: %s", pcap_geterr(from));
	CHECK(pthread_join(t, NULL) == 0, "join");
	drain();
	/* All accepted frames arrive, even when the sender is gone. */
	CHECK(pcap_setnonblock(from, 1, errbuf) == 0, "non-blocking");
	fill_up();
	pcap_close(from);
	drain();
	pcap_close(to);
	return 0;
}
