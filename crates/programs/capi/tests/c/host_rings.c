/* Several host rings: the stack's flows are spread over them, each flow on one; frames sent on any of them reach the stack; each can be opened
 * alone. Usage: host_rings INTERFACE OWN-ADDRESS OTHER-ADDRESS FAR-MAC, where the stack knows the other address's MAC, and sends there. */
#include "common.h"
#include <arpa/inet.h>
#include <libnetmap.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#define RINGS 4
#define FLOWS 64
#define FIRST_PORT 20000

static const char *nic, *own, *other;
static unsigned char own_mac[6], far_mac[6];

static struct nmport_d *
open_rings(const char *suffix)
{
	char name[128];
	struct nmport_d *d;

	snprintf(name, sizeof(name), "netmap:%s%s", nic, suffix);
	CHECK((d = nmport_open(name)) != NULL, "open %s", name);
	return d;
}

static struct sockaddr_in
address(const char *text, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	CHECK(inet_pton(AF_INET, text, &a.sin_addr) == 1, "address %s", text);
	return a;
}

/* The stack sends a datagram of each flow. */
static void
stack_sends(void)
{
	struct sockaddr_in to = address(other, 9);
	int i;

	for (i = 0; i < FLOWS; i++) {
		struct sockaddr_in from = address(own, (uint16_t)(FIRST_PORT + i));
		int s = socket(AF_INET, SOCK_DGRAM, 0);

		CHECK(s >= 0 && bind(s, (void *)&from, sizeof(from)) == 0, "a socket");
		CHECK(sendto(s, "flow", 4, 0, (void *)&to, sizeof(to)) == 4, "send");
		close(s);
	}
}

/* Returns the flow of a frame; -1 if it is none of the test's. */
static int
flow_of(const unsigned char *f, unsigned len)
{
	int flow;

	if (len < 42 || f[12] != 8 || f[13] != 0 || f[14] != 0x45 || f[23] != IPPROTO_UDP || f[37] != 9)
		return -1;
	flow = (f[34] << 8 | f[35]) - FIRST_PORT;
	return flow >= 0 && flow < FLOWS ? flow : -1;
}

/* Records the ring on which each flow's frames arrive. Returns the number of frames. */
static int
take(struct nmport_d *d, int *ring_of)
{
	int i, came = 0;

	for (i = d->first_rx_ring; i <= d->last_rx_ring; i++) {
		struct netmap_ring *r = NETMAP_RXRING(d->nifp, i);

		for (; !nm_ring_empty(r); r->head = r->cur = nm_ring_next(r, r->head)) {
			struct netmap_slot *s = &r->slot[r->head];
			int flow = flow_of((unsigned char *)NETMAP_BUF(r, s->buf_idx), s->len), ring = i - d->reg.nr_rx_rings;

			if (flow < 0)
				continue;
			CHECK(ring_of[flow] < 0 || ring_of[flow] == ring, "flow %d on rings %d and %d", flow, ring_of[flow], ring);
			ring_of[flow] = ring;
			came++;
		}
	}
	return came;
}

static void
forget(int *ring_of)
{
	int i;

	for (i = 0; i < FLOWS; i++)
		ring_of[i] = -1;
}

/* All rings, in one descriptor: flows keep to their rings. */
static void
flows_are_spread(int *ring_of)
{
	struct nmport_d *d = open_rings("^@conf:host-rings=4");
	int round, used[RINGS] = { 0 }, i;

	CHECK(d->reg.nr_host_tx_rings == RINGS && d->reg.nr_host_rx_rings == RINGS, "as asked");
	CHECK(d->nifp->ni_host_tx_rings == RINGS && d->nifp->ni_host_rx_rings == RINGS, "in the netmap_if");
	CHECK(d->last_rx_ring - d->first_rx_ring == RINGS - 1 && d->first_rx_ring == d->reg.nr_rx_rings, "bound");
	forget(ring_of);
	for (round = 0; round < 20; round++) {
		int came = 0;

		stack_sends();
		while (came < FLOWS) {
			CHECK(poll_for(d->fd, POLLIN, 5000) & POLLIN, "%d of %d frames came", came, FLOWS);
			came += take(d, ring_of);
		}
		CHECK(ioctl(d->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	}
	for (i = 0; i < FLOWS; i++)
		used[ring_of[i]]++;
	for (i = 0; i < RINGS; i++)
		CHECK(used[i] > 0, "ring %d of %d has no flow", i, RINGS);
	nmport_close(d);
}

/* One ring alone receives its flows; the others reach the wire. */
static void
one_alone(const int *ring_of)
{
	struct nmport_d *d = open_rings("^2@conf:host-rings=4");
	int now[FLOWS], expected = 0, came = 0, i;

	CHECK(d->first_rx_ring == d->reg.nr_rx_rings + 2 && d->last_rx_ring == d->first_rx_ring, "ring 2");
	CHECK(d->nifp->ring_ofs[d->reg.nr_tx_rings] == 0 && d->nifp->ring_ofs[d->first_tx_ring] != 0, "that one only");
	for (i = 0; i < FLOWS; i++)
		expected += ring_of[i] == 2;
	forget(now);
	stack_sends();
	while (came < expected) {
		CHECK(poll_for(d->fd, POLLIN, 5000) & POLLIN, "%d of %d frames came", came, expected);
		came += take(d, now);
	}
	for (i = 0; i < FLOWS; i++)
		CHECK((now[i] == 2) == (ring_of[i] == 2), "flow %d: ring %d, not %d", i, now[i], ring_of[i]);
	nmport_close(d);
}

static int reached;

struct one {
	int ring;
	const int *ring_of;
};

/* A thread with its own ring. */
static void *
thread(void *arg)
{
	struct one *one = arg;
	struct nmport_d *d;
	int now[FLOWS], came = 0, expected = 0, i;
	char suffix[32];

	snprintf(suffix, sizeof(suffix), "^%d@conf:host-rings=4", one->ring);
	d = open_rings(suffix);
	for (i = 0; i < FLOWS; i++)
		expected += one->ring_of[i] == one->ring;
	forget(now);
	__atomic_add_fetch(&reached, 1, __ATOMIC_SEQ_CST);
	while (came < expected) {
		CHECK(poll_for(d->fd, POLLIN, 10000) & POLLIN, "ring %d: %d of %d frames came", one->ring, came, expected);
		came += take(d, now);
	}
	for (i = 0; i < FLOWS; i++)
		CHECK(now[i] < 0 || one->ring_of[i] == one->ring, "flow %d on ring %d", i, one->ring);
	nmport_close(d);
	return NULL;
}

static void
a_thread_each(const int *ring_of)
{
	pthread_t threads[RINGS];
	struct one ones[RINGS];
	int i;

	for (i = 0; i < RINGS; i++) {
		ones[i] = (struct one){ i, ring_of };
		CHECK(pthread_create(&threads[i], NULL, thread, &ones[i]) == 0, "thread");
	}
	while (__atomic_load_n(&reached, __ATOMIC_SEQ_CST) < RINGS)
		usleep(1000);
	stack_sends();
	for (i = 0; i < RINGS; i++)
		pthread_join(threads[i], NULL);
}

static uint16_t
checksum(const unsigned char *p, int len)
{
	uint32_t sum = 0;

	for (; len > 1; p += 2, len -= 2)
		sum += (uint32_t)(p[0] << 8 | p[1]);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* A datagram from the other address to ours. */
static int
datagram(unsigned char *f, uint16_t port, unsigned char what)
{
	struct sockaddr_in from = address(other, 0), to = address(own, 0);
	uint16_t sum;

	memset(f, 0, 60);
	memcpy(f, own_mac, 6);
	memcpy(f + 6, far_mac, 6);
	f[12] = 8;
	f[14] = 0x45;
	f[17] = 28 + 1;
	f[22] = 64;
	f[23] = IPPROTO_UDP;
	memcpy(f + 26, &from.sin_addr, 4);
	memcpy(f + 30, &to.sin_addr, 4);
	sum = checksum(f + 14, 20);
	f[24] = (unsigned char)(sum >> 8);
	f[25] = (unsigned char)sum;
	f[35] = 9;
	f[36] = (unsigned char)(port >> 8);
	f[37] = (unsigned char)port;
	f[39] = 8 + 1;
	f[42] = what;
	return 60;
}

/* Each host tx ring leads to the stack; their number is not that of the rx rings. */
static void
all_reach_the_stack(void)
{
	struct nmport_d *d = open_rings("^@conf:host-tx-rings=4,host-rx-rings=2");
	struct sockaddr_in at = address(own, 30000);
	struct timeval limit = { .tv_sec = 5 };
	struct netmap_ring *r;
	unsigned char got[RINGS], byte;
	int s = socket(AF_INET, SOCK_DGRAM, 0), i;

	CHECK(d->reg.nr_host_tx_rings == 4 && d->reg.nr_host_rx_rings == 2, "as asked");
	CHECK(d->last_tx_ring - d->first_tx_ring == 3 && d->last_rx_ring - d->first_rx_ring == 1, "bound");
	CHECK(bind(s, (void *)&at, sizeof(at)) == 0, "bind");
	CHECK(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0, "a limit");
	memset(got, 0, sizeof(got));
	for (i = 0; i < RINGS; i++) {
		r = NETMAP_TXRING(d->nifp, d->first_tx_ring + i);
		r->slot[r->head].len =
		    (uint16_t)datagram((unsigned char *)NETMAP_BUF(r, r->slot[r->head].buf_idx), 30000, (unsigned char)i);
		r->head = r->cur = nm_ring_next(r, r->head);
	}
	CHECK(ioctl(d->fd, NIOCTXSYNC, NULL) == 0, "txsync");
	for (i = 0; i < RINGS; i++) {
		CHECK(recv(s, &byte, 1, 0) == 1 && byte < RINGS, "datagram %d", i);
		got[byte]++;
	}
	for (i = 0; i < RINGS; i++)
		CHECK(got[i] == 1, "of ring %d came %d", i, got[i]);
	close(s);
	nmport_close(d);
}

/* Numbers of rings, and refused ones. */
static void
numbers(void)
{
	struct nmreq_register r = { .nr_mode = NR_REG_ONE_SW, .nr_ringid = 1 };
	struct port a, b;
	int fd = device();

	CHECK(request(fd, nic, NETMAP_REQ_REGISTER, &r) < 0 && errno == EINVAL, "one host ring unless asked for more");
	r.nr_host_tx_rings = 3;
	r.nr_host_rx_rings = 1;
	r.nr_ringid = 3;
	CHECK(request(fd, nic, NETMAP_REQ_REGISTER, &r) < 0 && errno == EINVAL, "behind the last");
	r.nr_ringid = 2;
	a = open_port_with(nic, r);
	CHECK(a.reg.nr_host_tx_rings == 3 && a.reg.nr_host_rx_rings == 1, "as asked");
	CHECK(a.nifp->ring_ofs[1 + 2] != 0 && a.nifp->ring_ofs[1] == 0, "tx ring 2");
	CHECK(a.nifp->ring_ofs[1 + 3 + 1] != 0, "where there is no rx ring of that number, the first");
	r.nr_flags = NR_TX_RINGS_ONLY;
	CHECK(request(fd, nic, NETMAP_REQ_REGISTER, &r) < 0 && errno == EBUSY, "taken");
	r.nr_ringid = 0;
	r.nr_host_tx_rings = 9;
	b = open_port_with(nic, r);
	CHECK(b.reg.nr_host_tx_rings == 3 && b.reg.nr_host_rx_rings == 1, "later programs find the existing rings");
	CHECK(b.reg.nr_mem_id == a.reg.nr_mem_id, "in one region");
	close_port(&b);
	close_port(&a);
	memset(&r, 0, sizeof(r));
	r.nr_mode = NR_REG_ALL_NIC;
	r.nr_host_tx_rings = r.nr_host_rx_rings = 60000;
	CHECK(request(fd, nic, NETMAP_REQ_REGISTER, &r) < 0 && errno == ENOMEM, "more than there is memory for");
	close(fd);
	r.nr_host_tx_rings = r.nr_host_rx_rings = 12;
	a = open_port_with(nic, r);
	CHECK(a.reg.nr_host_rx_rings == 12 && a.nifp->ni_host_tx_rings == 12, "more than hardware rings");
	close_port(&a);
}

static void
read_mac(const char *text, unsigned char *mac)
{
	CHECK(sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) == 6, "%s",
	    text);
}

static void
find_own_mac(void)
{
	struct ifreq request = { 0 };
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", nic);
	CHECK(ioctl(s, 0x8927 /* SIOCGIFHWADDR */, &request) == 0, "address of %s", nic);
	memcpy(own_mac, request.ifr_hwaddr.sa_data, 6);
	close(s);
}

int
main(int argc, char **argv)
{
	int ring_of[FLOWS];

	CHECK(argc == 5, "an interface, two addresses, a MAC");
	alarm(90);
	nic = argv[1];
	own = argv[2];
	other = argv[3];
	read_mac(argv[4], far_mac);
	find_own_mac();
	numbers();
	flows_are_spread(ring_of);
	one_alone(ring_of);
	a_thread_each(ring_of);
	all_reach_the_stack();
	return 0;
}
