// Weights as colours, and arrays that come as base64.

function bytesOf(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = characters.charCodeAt(i);
  return bytes;
}
const floatsOf = (text) => new Float32Array(bytesOf(text).buffer);

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// 256 colours [r, g, b] between the given ones.
function ramp(colours) {
  const stops = colours.map(rgb);
  return Array.from({ length: 256 }, (_, level) => {
    const at = (level / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (at - low)));
  });
}

// An image of n rows and m columns; `level(i)` is 0 to 255, or undefined for what the mask hides, which stays clear.
function paint(canvas, n, m, colours, level) {
  canvas.width = m;
  canvas.height = n;
  const image = new ImageData(m, n);
  const pixels = new Uint32Array(image.data.buffer);
  const packed = new Uint32Array(new Uint8Array(colours.flatMap((colour) => [...colour, 255])).buffer);
  for (let i = 0; i < n * m; i += 1) {
    const shade = level(i);
    if (shade !== undefined) pixels[i] = packed[shade];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}
