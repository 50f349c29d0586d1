package gateway

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits of what one user may do at one replica of the gateway. Zero values mean the defaults.
type Limits struct {
	// PerSecond is how many requests a user may begin in a second, in the long run; 100 by default.
	PerSecond float64
	// Burst is how many at once after a rest; 400 by default.
	Burst int
	// AtOnce is how many requests of a user may be open, watches and streams among them; 1000 by default.
	AtOnce int
}

func (l Limits) complete() Limits {
	if l.PerSecond == 0 {
		l.PerSecond = 100
	}
	if l.Burst == 0 {
		l.Burst = 400
	}
	if l.AtOnce == 0 {
		l.AtOnce = 1000
	}
	return l
}

// limiter keeps the limits. It forgets users who have rested.
type limiter struct {
	limits Limits
	mu     sync.Mutex
	users  map[string]*usage
	swept  time.Time
}

type usage struct {
	rate *rate.Limiter
	open int
}

func newLimiter(limits Limits) *limiter {
	return &limiter{limits: limits.complete(), users: map[string]*usage{}}
}

// enter lets a user's request in, and returns what to call when it has ended.
func (l *limiter) enter(user string) (release func(), p *problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(time.Now())
	u, ok := l.users[user]
	if !ok {
		u = &usage{rate: rate.NewLimiter(rate.Limit(l.limits.PerSecond), l.limits.Burst)}
		l.users[user] = u
	}
	if u.open >= l.limits.AtOnce {
		return nil, tooMany(1, "you have %d requests open; end some, or wait", u.open)
	}
	if !u.rate.Allow() {
		return nil, tooMany(1, "you send more than %g requests a second; wait", l.limits.PerSecond)
	}
	u.open++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		u.open--
	}, nil
}

// sweep forgets, once a minute, users without open requests whose burst is whole again.
func (l *limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Minute {
		return
	}
	l.swept = now
	for name, u := range l.users {
		if u.open == 0 && u.rate.TokensAt(now) >= float64(l.limits.Burst) {
			delete(l.users, name)
		}
	}
}
